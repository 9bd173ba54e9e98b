#include "api/responses/response_stream.h"

#include <utility>

namespace bl::responses {
namespace {

using openai::BlockKind;
using openai::BlockStep;

constexpr const char* kCompleted = "completed";
constexpr const char* kIncomplete = "incomplete";
constexpr const char* kInProgress = "in_progress";

const char* id_prefix(BlockKind block) {
  switch (block) {
    case BlockKind::kContent:
      return "msg_";
    case BlockKind::kReasoning:
      return "rs_";
    case BlockKind::kCall:
      break;
  }
  return "fc_";
}

// The one part of a message's or a reasoning's content.
Json part_of(const BlockStep& step, const std::string& text) {
  if (step.block == BlockKind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

// The item of a block. Its content is empty while the block is open.
Json item_of(const BlockStep& step, const std::string& id, const char* status) {
  Json content = Json::array();
  if (step.kind == BlockStep::Kind::kClose) content.push_back(part_of(step, step.text));
  switch (step.block) {
    case BlockKind::kContent:
      return {{"id", id},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", std::move(content)}};
    case BlockKind::kReasoning:
      return {{"id", id},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", std::move(content)}};
    case BlockKind::kCall:
      break;
  }
  return {{"id", id},           {"type", "function_call"}, {"status", status},
          {"call_id", step.id}, {"name", step.name},       {"arguments", step.text}};
}

Json usage_of(const Usage& usage, std::int64_t reasoning_tokens) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
}

}  // namespace

ResponseStream::ResponseStream(ResponseHead head)
    : response_(std::move(head.echoed)), new_id_(std::move(head.new_id)) {
  response_["id"] = std::move(head.id);
  response_["object"] = "response";
  response_["created_at"] = head.created;
  response_["model"] = std::move(head.model);
  response_["status"] = kInProgress;
  response_["error"] = nullptr;
  response_["incomplete_details"] = nullptr;
  response_["output"] = Json::array();
  response_["usage"] = nullptr;
}

std::vector<Json> ResponseStream::push(const Event& event, const std::vector<AnswerEvent>& news,
                                       std::int64_t reasoning_tokens) {
  std::vector<Json> events;
  if (sequence_number_ == 0) start(events);
  write(blocks_.push(news), events);
  if (event.finish) end(event, reasoning_tokens, events);
  return events;
}

Json ResponseStream::failed(const Json& error) {
  response_["status"] = "failed";
  response_["error"] = error;
  return numbered({{"type", "response.failed"}, {"response", response_}});
}

Json ResponseStream::numbered(Json event) {
  event["sequence_number"] = sequence_number_++;
  return event;
}

void ResponseStream::start(std::vector<Json>& events) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    events.push_back(numbered({{"type", type}, {"response", response_}}));
  }
}

Json ResponseStream::item_event(const char* type, const BlockStep& step) const {
  return {{"type", type}, {"item_id", item_id_}, {"output_index", step.index}};
}

void ResponseStream::write(const std::vector<BlockStep>& steps, std::vector<Json>& events) {
  for (const BlockStep& step : steps) {
    if (step.kind == BlockStep::Kind::kOpen) {
      open(step, events);
    } else if (step.kind == BlockStep::Kind::kClose) {
      close(step, events);
    } else {
      const bool is_call = step.block == BlockKind::kCall;
      Json event = item_event(is_call ? "response.function_call_arguments.delta"
                              : step.block == BlockKind::kContent ? "response.output_text.delta"
                                                                  : "response.reasoning_text.delta",
                              step);
      event["delta"] = step.text;
      if (!is_call) event["content_index"] = 0;
      if (step.block == BlockKind::kContent) event["logprobs"] = Json::array();
      events.push_back(numbered(std::move(event)));
    }
  }
}

void ResponseStream::open(const BlockStep& step, std::vector<Json>& events) {
  item_id_ = new_id_(id_prefix(step.block));
  events.push_back(numbered({{"type", "response.output_item.added"},
                             {"output_index", step.index},
                             {"item", item_of(step, item_id_, kInProgress)}}));
  if (step.block == BlockKind::kCall) return;
  Json part = item_event("response.content_part.added", step);
  part["content_index"] = 0;
  part["part"] = part_of(step, "");
  events.push_back(numbered(std::move(part)));
}

void ResponseStream::close(const BlockStep& step, std::vector<Json>& events) {
  if (step.block == BlockKind::kCall) {
    Json done = item_event("response.function_call_arguments.done", step);
    done["name"] = step.name;
    done["arguments"] = step.text;
    events.push_back(numbered(std::move(done)));
  } else {
    const bool is_text = step.block == BlockKind::kContent;
    Json done =
        item_event(is_text ? "response.output_text.done" : "response.reasoning_text.done", step);
    done["content_index"] = 0;
    done["text"] = step.text;
    if (is_text) done["logprobs"] = Json::array();
    events.push_back(numbered(std::move(done)));
    Json part = item_event("response.content_part.done", step);
    part["content_index"] = 0;
    part["part"] = part_of(step, step.text);
    events.push_back(numbered(std::move(part)));
  }
  const bool is_whole = step.complete && !cut_;
  Json item = item_of(step, item_id_, is_whole ? kCompleted : kIncomplete);
  response_["output"].push_back(item);
  events.push_back(numbered({{"type", "response.output_item.done"},
                             {"output_index", step.index},
                             {"item", std::move(item)}}));
}

void ResponseStream::end(const Event& event, std::int64_t reasoning_tokens,
                         std::vector<Json>& events) {
  cut_ = *event.finish == FinishReason::kMaxTokens || *event.finish == FinishReason::kContext;
  write(blocks_.finish(), events);
  response_["status"] = cut_ ? kIncomplete : kCompleted;
  if (cut_) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response_["usage"] = usage_of(event.usage, reasoning_tokens);
  events.push_back(numbered(
      {{"type", cut_ ? "response.incomplete" : "response.completed"}, {"response", response_}}));
}

}  // namespace bl::responses
