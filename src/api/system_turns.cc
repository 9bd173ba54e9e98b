#include "api/system_turns.h"

#include <string>

#include "base/json.h"

namespace bl::openai {
namespace {

bool is_role(const OrderedJson& message, const char* role) {
  return message.value("role", OrderedJson()) == role;
}

std::string text_of(const OrderedJson& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>()
                                                          : std::string();
}

}  // namespace

std::optional<OrderedJson> fold_systems(const OrderedJson& messages, SystemFolding folding) {
  OrderedJson folded = OrderedJson::array();
  bool is_changed = false;
  bool after_folded = false;  // the last turn of `folded` ends in a system message's text
  for (const OrderedJson& message : messages) {
    const bool is_system = is_role(message, "system") || is_role(message, "developer");
    const bool at_front = folded.empty() || is_role(folded.back(), "system");
    OrderedJson turn = message;
    const bool becomes_user = is_system && (folding == SystemFolding::kAll || !at_front);
    if (becomes_user) turn["role"] = "user";
    is_changed = is_changed || becomes_user;
    const bool joins = !folded.empty() && folded.back()["role"] == turn["role"] &&
                       (is_system || (after_folded && is_role(turn, "user")));
    after_folded = becomes_user;
    if (!joins) {
      folded.push_back(std::move(turn));
      continue;
    }
    is_changed = true;
    folded.back()["content"] = text_of(folded.back()) + "\n\n" + text_of(turn);
  }
  if (!is_changed) return std::nullopt;
  return folded;
}

}  // namespace bl::openai
