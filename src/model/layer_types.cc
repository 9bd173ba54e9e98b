#include "model/layer_types.h"

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

const char* const kFull = "full_attention";
const char* const kSliding = "sliding_attention";

std::vector<std::string> from_list(const HfConfig::Found& found, const std::string& file,
                                   std::int64_t layers) {
  if (!found.value->is_array() || static_cast<std::int64_t>(found.value->size()) < layers) {
    fail(ErrorCode::kInvalidFile, "{}: {} must be a list of {} words, one a layer", file,
         found.path, layers);
  }
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < layers; ++i) {
    const Json& item = (*found.value)[static_cast<std::size_t>(i)];
    if (!item.is_string()) {
      fail(ErrorCode::kInvalidFile, "{}: {} holds {}, must hold words such as \"{}\"", file,
           found.path, json_text(item).substr(0, 60), kFull);
    }
    types.push_back(item.get<std::string>());
  }
  return types;
}

std::vector<std::string> from_marks(const LayerTypeRule& rule, const ArchEvaluator& at,
                                    std::int64_t layers) {
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool marked = at.for_layer(i, layers).holds({{rule.marks}});
    types.push_back(marked ? kFull : rule.other);
  }
  return types;
}

// Returns the types that the rule gives; empty if the config lacks the keys that it reads.
std::vector<std::string> apply(const LayerTypeRule& rule, const ArchEvaluator& at,
                               std::int64_t layers) {
  std::vector<std::string> types;
  if (!rule.list.empty()) {
    if (const auto found = at.config().find(rule.list)) {
      return from_list(*found, at.config().file(), layers);
    }
    return types;
  }
  if (!rule.marks.empty()) return from_marks(rule, at, layers);
  if (!rule.repeat.empty()) {
    const std::int64_t until =
        at.find_whole("end of a cycle of layer types", rule.until, {0, kMaxLayers})
            .value_or(layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto place = static_cast<std::size_t>(i) % rule.repeat.size();
      types.push_back(i < until ? rule.repeat[place] : kFull);
    }
  } else if (!rule.letters.empty()) {
    const auto found = at.config().find(rule.letters);
    if (!found || !found->value->is_string() || found->value->get<std::string>().empty()) {
      return types;
    }
    const std::string letters = found->value->get<std::string>();
    for (std::int64_t i = 0; i < layers; ++i) {
      const char letter = letters[static_cast<std::size_t>(i) % letters.size()];
      const bool full = letter == 'G' || i + 1 == layers;
      types.emplace_back(full ? kFull : kSliding);
    }
  } else if (rule.every.given()) {
    const auto found = at.config().find(rule.every.alternatives[0].text);
    if (found && found->value->is_string()) return types;  // letters, for another rule
    const auto every = at.find_whole("pattern of layer types", rule.every, {0, kMaxLayers});
    if (!every || *every == 0) return types;
    for (std::int64_t i = 0; i < layers; ++i) {
      types.push_back((i + 1) % *every == 0 ? rule.every_is : rule.other);
    }
  } else if (rule.from.given()) {
    const auto from = at.find_whole("first layer of another type", rule.from, {0, kMaxLayers});
    if (!from) return types;
    for (std::int64_t i = 0; i < layers; ++i) types.push_back(i >= *from ? rule.other : kFull);
  }
  return types;
}

}  // namespace

std::vector<std::string> layer_types(const ArchSpec& arch, const ArchEvaluator& at,
                                     std::int64_t layers) {
  for (const LayerTypeRule& rule : arch.layer_types) {
    if (!at.holds(rule.condition)) continue;
    std::vector<std::string> types = apply(rule, at, layers);
    if (types.empty()) continue;
    if (!rule.last.empty()) types.back() = rule.last;
    for (const std::string& type : types) {
      if (type != kFull && !arch.types.contains(type)) {
        fail(ErrorCode::kUnsupported,
             "{}: a layer is of type {}, which archs/{}.json does not describe", at.config().file(),
             json_text(Json(type.substr(0, 60))), arch.name);
      }
    }
    return types;
  }
  return std::vector<std::string>(static_cast<std::size_t>(layers), kFull);
}

}  // namespace bl
