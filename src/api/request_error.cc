#include "api/request_error.h"

namespace bl::openai {
namespace {

// A request's own texts (a grammar, a schema) may break their format or a limit, too.
bool is_clients(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kLimit:
      return true;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kIo:
    case ErrorCode::kCancelled:
    case ErrorCode::kDevice:
      break;
  }
  return false;
}

}  // namespace

ContextOverflow::ContextOverflow(std::int64_t prompt_tokens, std::int64_t context)
    : Error(
          ErrorCode::kInvalidArgument,
          fmt::format("This model's maximum context length is {} tokens. The prompt has {} tokens; "
                      "it is too large and exceeds the available context size, which must also "
                      "hold at least one token of the answer; shorten the prompt, or start the "
                      "server with a "
                      "larger --ctx",
                      context, prompt_tokens)),
      prompt_tokens_(prompt_tokens),
      context_(context) {}

ErrorAnswer error_answer(const Error& error) {
  const bool clients = is_clients(error.code());
  const auto* request = dynamic_cast<const RequestError*>(&error);
  const Json param = request == nullptr ? Json() : Json(request->param());
  if (const auto* overflow = dynamic_cast<const ContextOverflow*>(&error)) {
    return {400,
            {{"error",
              {{"message", error.what()},
               {"type", "exceed_context_size_error"},
               {"param", nullptr},
               {"code", "context_length_exceeded"},
               {"n_prompt_tokens", overflow->prompt_tokens()},
               {"n_ctx", overflow->context()}}}}};
  }
  return {clients ? 400 : 500,
          {{"error",
            {{"message", error.what()},
             {"type", clients ? "invalid_request_error" : "server_error"},
             {"param", param},
             {"code", nullptr}}}}};
}

}  // namespace bl::openai
