#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_fwd.h"
#include "http/exchange.h"
#include "http/message.h"

namespace bl::server {

// How the routes of one API say that a request failed.
enum class ErrorShape {
  kOpenAi,     // {"error": {message, type, param, code}}
  kAnthropic,  // {"type": "error", "error": {type, message}}
  kOllama,     // {"error": message}
  kLlama,      // {"error": {code, message, type}}, where code is the status
  kKobold,     // {"detail": {msg, type}}
};

// Thrown by handlers whose answer has a status or code of its own.
class HttpError : public Error {
 public:
  HttpError(int status, std::string code, const std::string& message)
      : Error(ErrorCode::kInvalidArgument, message), status_(status), code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& code() const { return code_; }  // "model_not_found"; may be empty

 private:
  int status_;
  std::string code_;
};

// The status of an answer to a request that ended with `error`: 4xx for what the client did.
int status_of(const Error& error);
// The error object, for whole answers and for the events of a stream.
Json error_body(ErrorShape shape, const Error& error);
http::Response error_response(ErrorShape shape, const Error& error);

http::Response json_response(int status, const Json& body);
// Answers with status 200.
void respond_json(http::Exchange& to, const Json& body);

}  // namespace bl::server
