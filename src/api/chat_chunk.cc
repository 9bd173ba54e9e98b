#include "api/chat_chunk.h"

#include <utility>

namespace bl::openai {
namespace {

Json call_json(const ToolCallDelta& call) {
  Json json{{"index", call.index}, {"function", {{"arguments", call.arguments}}}};
  if (call.id.empty()) return json;
  json["id"] = call.id;
  json["type"] = "function";
  json["function"]["name"] = call.name;
  return json;
}

}  // namespace

Json ChatChunk::json(const ChunkFrame& frame) const {
  Json delta = Json::object();
  if (has_role) delta = {{"role", "assistant"}, {"content", nullptr}};
  if (content) delta["content"] = *content;
  if (reasoning) delta["reasoning_content"] = *reasoning;
  for (const ToolCallDelta& call : tool_calls) delta["tool_calls"].push_back(call_json(call));
  Json choice{{"index", index},
              {"delta", std::move(delta)},
              {"logprobs", logprobs},
              {"finish_reason", nullptr}};
  if (finish_reason != nullptr) {
    choice["finish_reason"] = finish_reason;
    choice["stop_reason"] = stop_reason;
  }
  return frame.chunk(std::move(choice));
}

}  // namespace bl::openai
