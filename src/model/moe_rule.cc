#include "model/moe_rule.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

// Whether `layer` is in a list of numbers, or in a string of numbers separated by commas.
bool listed(const Json& list, std::int64_t layer, const std::string& where) {
  if (list.is_array()) {
    for (const Json& item : list) {
      if (!item.is_number_integer()) {
        fail(ErrorCode::kInvalidFile, "{} must hold whole numbers, the numbers of layers", where);
      }
      if (item.get<std::int64_t>() == layer) return true;
    }
    return false;
  }
  if (!list.is_string()) {
    fail(ErrorCode::kInvalidFile, "{} must be a list of layer numbers", where);
  }
  std::string_view text = list.get_ref<const std::string&>();
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    while (word.starts_with(' ')) word.remove_prefix(1);
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc()) {
      fail(ErrorCode::kInvalidFile, "{} must be layer numbers between commas", where);
    }
    if (number == layer) return true;
  }
  return false;
}

bool listed_under(const std::string& key, const ArchEvaluator& at, std::int64_t layer) {
  const auto found = at.config().find(key);
  return found && listed(*found->value, layer, at.config().file() + ": " + found->path);
}

}  // namespace

bool layer_routes(const MoeRule& rule, const ArchEvaluator& at, std::int64_t layer) {
  if (!rule.kinds.empty() && at.config().find(rule.kinds)) {
    const ArchValue kinds = parse_arch_value(rule.kinds + ".{i}", rule.kinds);
    return at.find_text("kind of the feed-forward layer", kinds) == rule.kind_is;
  }
  const ArchEvaluator::Range any{0, kMaxLayers};
  const std::int64_t first = at.find_whole("first layer of experts", rule.first, any).value_or(0);
  const std::int64_t last =
      at.find_whole("last layer of experts", rule.last, {-1, kMaxLayers}).value_or(-1);
  if (layer < first || (last >= 0 && layer > last)) return false;
  if (const auto step = at.find_whole("step of expert layers", rule.step, {1, kMaxLayers})) {
    const bool from_first = at.flag("offset of expert layers", rule.offset, false);
    if ((from_first ? layer - first : layer + 1) % *step != 0) return false;
  }
  if (!rule.except.empty() && listed_under(rule.except, at, layer)) return false;
  if (!rule.only.empty() && at.config().find(rule.only)) return listed_under(rule.only, at, layer);
  return true;
}

}  // namespace bl
