#pragma once
#include <map>
#include <string>

#include "base/json.h"

namespace bl::anthropic {

// Translates the turns of a conversation of Anthropic's form into messages of OpenAI's form.
class Turns {
 public:
  Turns() : messages_(OrderedJson::array()) {}

  // The system prompt of a request: a text, or a list of blocks of text.
  void add_system(const OrderedJson& content);
  // A message. `path` is its place in the body, as "messages[2]". Throws RequestError for roles and
  // blocks that do not exist or cannot be read.
  void add(const OrderedJson& message, const std::string& path);

  OrderedJson take() { return std::move(messages_); }

 private:
  void add_user(const OrderedJson& blocks, const std::string& path);
  void add_assistant(const OrderedJson& blocks, const std::string& path);
  void add_result(const OrderedJson& block, const std::string& path);
  void add_text(const char* role, std::string text);

  OrderedJson messages_;
  std::map<std::string, std::string> tool_of_call_;  // names of tools by the ids of calls
};

}  // namespace bl::anthropic
