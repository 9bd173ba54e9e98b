#include "transcript.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace bl {

bool Transcript::undo() {
  if (turns_.empty()) return false;
  while (!turns_.empty() && !turns_.back().is_user) turns_.pop_back();
  if (!turns_.empty()) turns_.pop_back();
  return true;
}

bool Transcript::drop_answer() {
  while (!turns_.empty() && !turns_.back().is_user) turns_.pop_back();
  return !turns_.empty();
}

OrderedJson Transcript::messages() const {
  OrderedJson messages = OrderedJson::array();
  const auto add = [&](const char* role, const std::string& text) {
    OrderedJson message;
    message["role"] = role;
    message["content"] = text;
    messages.push_back(std::move(message));
  };
  if (!system_.empty()) add("system", system_);
  for (const Turn& turn : turns_) add(turn.is_user ? "user" : "assistant", turn.text);
  return messages;
}

void Transcript::save(const std::filesystem::path& path) const {
  const OrderedJson document = {{"messages", messages()}};
  write_file_atomically(path, json_text(document, 1) + "\n");
}

void Transcript::load(const std::filesystem::path& path) {
  const OrderedJson document = parse_ordered_json(read_file(path, 64 << 20), path.string());
  const auto refuse = [&](const char* what) {
    fail(ErrorCode::kInvalidFile, "{}: {}", path.string(), what);
  };
  if (!document.is_object() || !document.contains("messages") || !document["messages"].is_array()) {
    refuse("has no \"messages\" array");
  }
  Transcript loaded;
  for (const OrderedJson& message : document["messages"]) {
    if (!message.is_object() || !message.contains("role") || !message.contains("content") ||
        !message["role"].is_string() || !message["content"].is_string()) {
      refuse("a message has no \"role\" or no \"content\", which should be strings");
    }
    const auto role = message["role"].get<std::string>();
    auto content = message["content"].get<std::string>();
    if (role == "system" && loaded.turns_.empty()) {
      loaded.system_ = std::move(content);
    } else if (role == "user") {
      loaded.add_user(std::move(content));
    } else if (role == "assistant") {
      loaded.add_answer(std::move(content));
    } else {
      refuse("a message has a role other than system (only first), user or assistant");
    }
  }
  *this = std::move(loaded);
}

}  // namespace bl
