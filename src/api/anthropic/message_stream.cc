#include "api/anthropic/message_stream.h"

#include <utility>

#include "api/begun_object.h"
#include "base/check.h"

namespace bl::anthropic {
namespace {

using openai::BlockKind;
using openai::BlockStep;

// Clients send thinking back only with a signature, which Anthropic's servers check. Nothing here
// has to be protected from them.
constexpr const char* kSignature = "bm90IHNpZ25lZA==";  // "not signed"

// Anthropic counts the prompt's tokens that were found in the cache apart from the others.
Json usage(std::int64_t prompt, std::int64_t cached, std::int64_t generated) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", generated}};
}

Json empty_block(const BlockStep& step) {
  switch (step.block) {
    case BlockKind::kContent:
      return {{"type", "text"}, {"text", ""}};
    case BlockKind::kReasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case BlockKind::kCall:
      break;
  }
  return {{"type", "tool_use"}, {"id", step.id}, {"name", step.name}, {"input", Json::object()}};
}

Json delta_of(const BlockStep& step) {
  switch (step.block) {
    case BlockKind::kContent:
      return {{"type", "text_delta"}, {"text", step.text}};
    case BlockKind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", step.text}};
    case BlockKind::kCall:
      break;
  }
  return {{"type", "input_json_delta"}, {"partial_json", step.text}};
}

const char* stop_reason(FinishReason reason, bool has_complete_calls) {
  switch (reason) {
    case FinishReason::kStopString:
      return "stop_sequence";
    case FinishReason::kMaxTokens:
    case FinishReason::kContext:
      return "max_tokens";
    default:
      return has_complete_calls ? "tool_use" : "end_turn";
  }
}

}  // namespace

std::vector<Json> MessageStream::push(const Event& event, const std::vector<AnswerEvent>& news) {
  std::vector<Json> events;
  if (!std::exchange(begun_, true)) events.push_back(start(event));
  write(blocks_.push(news), events);
  if (event.finish) end(event, events);
  return events;
}

Json MessageStream::start(const Event& event) const {
  const std::int64_t cached = event.started ? event.started->cached_tokens : 0;
  return {{"type", "message_start"},
          {"message",
           {{"id", head_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head_.model},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", usage(head_.prompt_tokens, cached, 0)}}}};
}

void MessageStream::write(const std::vector<BlockStep>& steps, std::vector<Json>& events) const {
  const auto delta = [&](const BlockStep& step, Json json) {
    events.push_back(
        {{"type", "content_block_delta"}, {"index", step.index}, {"delta", std::move(json)}});
  };
  for (const BlockStep& step : steps) {
    switch (step.kind) {
      case BlockStep::Kind::kOpen:
        events.push_back({{"type", "content_block_start"},
                          {"index", step.index},
                          {"content_block", empty_block(step)}});
        break;
      case BlockStep::Kind::kText:
        delta(step, delta_of(step));
        break;
      case BlockStep::Kind::kClose:
        if (step.block == BlockKind::kReasoning) {
          delta(step, {{"type", "signature_delta"}, {"signature", kSignature}});
        }
        events.push_back({{"type", "content_block_stop"}, {"index", step.index}});
        break;
    }
  }
}

void MessageStream::end(const Event& event, std::vector<Json>& events) {
  write(blocks_.finish(), events);
  const bool has_stopped = *event.finish == FinishReason::kStopString;
  events.push_back({{"type", "message_delta"},
                    {"delta",
                     {{"stop_reason", stop_reason(*event.finish, blocks_.has_complete_calls())},
                      {"stop_sequence", has_stopped ? Json(event.stop_string) : Json()}}},
                    {"usage", usage(head_.prompt_tokens, event.usage.cached_tokens,
                                    event.usage.generated_tokens)}});
  events.push_back({{"type", "message_stop"}});
}

void WholeMessage::add(const Json& event) {
  const std::string& type = event.at("type").get_ref<const std::string&>();
  if (type == "message_start") {
    message_ = event.at("message");
    return;
  }
  if (type == "message_delta") {
    for (const auto& [key, value] : event.at("delta").items()) message_[key] = value;
    message_["usage"] = event.at("usage");
    return;
  }
  if (type == "message_stop") return;
  Json& content = message_["content"];
  if (type == "content_block_start") {
    content.push_back(event.at("content_block"));
    arguments_.clear();
    return;
  }
  Json& block = content.back();
  if (type == "content_block_stop") {
    if (block.at("type") == "tool_use") block["input"] = openai::begun_object(arguments_);
    return;
  }
  BL_CHECK(type == "content_block_delta");
  for (const auto& [key, value] : event.at("delta").items()) {
    if (key == "type") continue;
    std::string& text = key == "partial_json" ? arguments_ : block.at(key).get_ref<std::string&>();
    text += value.get_ref<const std::string&>();
  }
}

}  // namespace bl::anthropic
