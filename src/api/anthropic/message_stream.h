#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/answer_blocks.h"
#include "base/json.h"
#include "engine/request.h"
#include "toolcall/answer_event.h"

namespace bl::anthropic {

struct MessageHead {
  std::string id;
  std::string model;
  std::int64_t prompt_tokens = 0;
};

// Turns the reading of an answer into the events of a stream of /v1/messages. Each is an object
// whose "type" is the event's name.
class MessageStream {
 public:
  explicit MessageStream(MessageHead head) : head_(std::move(head)) {}

  // Returns the events that follow from an event of the engine and what it adds to the reading:
  // message_start with the first one, message_stop with the last one. The count of cached tokens in
  // message_start is right if the request asked for Request::tell_start.
  std::vector<Json> push(const Event& event, const std::vector<AnswerEvent>& news);

 private:
  Json start(const Event& event) const;
  void write(const std::vector<openai::BlockStep>& steps, std::vector<Json>& events) const;
  void end(const Event& event, std::vector<Json>& events);

  MessageHead head_;
  openai::AnswerBlocks blocks_;
  bool begun_ = false;
};

// Puts the message of an answer that is not streamed together from the events of the stream.
class WholeMessage {
 public:
  void add(const Json& event);
  const Json& message() const { return message_; }

 private:
  Json message_;
  std::string arguments_;  // of the call that is open
};

}  // namespace bl::anthropic
