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
  const auto count = static_cast<std::size_t>(layers);
  if (!rule.repeat.empty()) {
    for (std::size_t i = 0; i < count; ++i) types.push_back(rule.repeat[i % rule.repeat.size()]);
  } else if (!rule.letters.empty()) {
    const auto found = at.config().find(rule.letters);
    if (!found || !found->value->is_string() || found->value->get<std::string>().empty()) {
      return types;
    }
    const std::string letters = found->value->get<std::string>();
    for (std::size_t i = 0; i < count; ++i) {
      const bool full = letters[i % letters.size()] == 'G' || i + 1 == count;
      types.emplace_back(full ? kFull : kSliding);
    }
  } else if (rule.every.given()) {
    const auto found = at.config().find(rule.every.alternatives[0].text);
    if (found && found->value->is_string()) return types;  // letters, for another rule
    const auto every = at.find_whole("pattern of layer types", rule.every, {0, kMaxLayers});
    if (!every || *every == 0) return types;
    for (std::int64_t i = 0; i < layers; ++i) {
      types.push_back((i + 1) % *every == 0 ? kFull : rule.other);
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
