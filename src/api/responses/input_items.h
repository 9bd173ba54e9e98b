#pragma once
#include <string>

#include "base/json.h"

namespace bl::responses {

// Translates the input of a request to /v1/responses into messages of OpenAI's form of chats: the
// reasoning, the text and the calls of one turn, which are items of their own, become one message.
class InputItems {
 public:
  InputItems() : messages_(OrderedJson::array()) {}

  void add_text(const char* role, const std::string& text);
  // `path` is the item's place in the body, as "input[2]". Throws RequestError for items and parts
  // that cannot be read. Items of tools that OpenAI's servers run are skipped.
  void add(const OrderedJson& item, const std::string& path);

  OrderedJson take();

 private:
  void add_message(const OrderedJson& item, const std::string& path);
  void add_reasoning(const OrderedJson& item, const std::string& path);
  void add_call(const OrderedJson& item, const std::string& path, const char* arguments);
  void add_output(const OrderedJson& item, const std::string& path);
  OrderedJson& turn();
  void end_turn();

  OrderedJson messages_;
  OrderedJson turn_;  // the assistant's message that further items may belong to; null: none
};

}  // namespace bl::responses
