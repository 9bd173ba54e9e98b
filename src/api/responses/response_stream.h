#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_blocks.h"
#include "base/json.h"
#include "engine/request.h"
#include "toolcall/answer_event.h"

namespace bl::responses {

struct ResponseHead {
  std::string id;
  std::string model;
  std::int64_t created = 0;  // Unix seconds
  Json echoed;               // echoed_fields() of the request
  // Makes the ids of items; the argument is a prefix, such as "msg_".
  std::function<std::string(std::string_view)> new_id;
};

// Turns the reading of an answer into the events of a stream of /v1/responses. Each is an object
// whose "type" is the event's name. The last event has the whole response, which is also the answer
// to a request that is not streamed.
class ResponseStream {
 public:
  explicit ResponseStream(ResponseHead head);

  // Returns the events that follow from an event of the engine and what it adds to the reading:
  // response.created with the first one; response.completed, or response.incomplete at the limit of
  // tokens, with the last one. `reasoning_tokens`: how many tokens so far are reasoning.
  std::vector<Json> push(const Event& event, const std::vector<AnswerEvent>& news,
                         std::int64_t reasoning_tokens);
  // The last event of an answer that cannot be finished. `error`: {"code", "message"}.
  Json failed(const Json& error);

 private:
  Json numbered(Json event);
  void start(std::vector<Json>& events);
  void write(const std::vector<openai::BlockStep>& steps, std::vector<Json>& events);
  void open(const openai::BlockStep& step, std::vector<Json>& events);
  void close(const openai::BlockStep& step, std::vector<Json>& events);
  Json item_event(const char* type, const openai::BlockStep& step) const;
  void end(const Event& event, std::int64_t reasoning_tokens, std::vector<Json>& events);

  Json response_;
  std::function<std::string(std::string_view)> new_id_;
  std::string item_id_;  // of the block that is open
  openai::AnswerBlocks blocks_;
  std::int64_t sequence_number_ = 0;
  bool cut_ = false;  // the answer ended at a limit, and its last block with it
};

}  // namespace bl::responses
