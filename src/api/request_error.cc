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

ErrorAnswer error_answer(const Error& error) {
  const bool clients = is_clients(error.code());
  const auto* request = dynamic_cast<const RequestError*>(&error);
  const Json param = request == nullptr ? Json() : Json(request->param());
  return {clients ? 400 : 500,
          {{"error",
            {{"message", error.what()},
             {"type", clients ? "invalid_request_error" : "server_error"},
             {"param", param},
             {"code", nullptr}}}}};
}

}  // namespace bl::openai
