#include "server/error_shape.h"

#include "api/request_error.h"
#include "base/json.h"

namespace bl::server {
namespace {

const char* anthropic_type(int status) {
  switch (status) {
    case 400:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Clients of Anthropic's know a prompt that is too long by these words.
std::string anthropic_message(const Error& error) {
  const auto* overflow = dynamic_cast<const openai::ContextOverflow*>(&error);
  if (overflow == nullptr) return error.what();
  return fmt::format("prompt is too long: {} tokens > {} maximum", overflow->prompt_tokens(),
                     overflow->context());
}

const char* openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

// The names of llama-server's own routes.
const char* llama_type(int status) {
  switch (status) {
    case 404:
      return "not_found_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return openai_type(status);
  }
}

const char* kobold_type(int status) {
  switch (status) {
    case 404:
      return "not_found";
    case 429:
    case 503:
      return "service_unavailable";
    default:
      return status < 500 ? "bad_input" : "server_error";
  }
}

// The members of OpenAI's error object, with the status as the code.
Json llama_body(const Error& error, int status) {
  Json body = openai::error_answer(error).body;
  Json& inner = body["error"];
  inner["code"] = status;
  inner.erase("param");
  if (dynamic_cast<const HttpError*>(&error) != nullptr) inner["type"] = llama_type(status);
  return body;
}

}  // namespace

int status_of(const Error& error) {
  if (const auto* http = dynamic_cast<const HttpError*>(&error)) return http->status();
  return openai::error_answer(error).status;
}

Json error_body(ErrorShape shape, const Error& error) {
  const int status = status_of(error);
  switch (shape) {
    case ErrorShape::kAnthropic:
      return {{"type", "error"},
              {"error", {{"type", anthropic_type(status)}, {"message", anthropic_message(error)}}}};
    case ErrorShape::kOllama:
      return {{"error", error.what()}};
    case ErrorShape::kLlama:
      return llama_body(error, status);
    case ErrorShape::kKobold:
      return {{"detail", {{"msg", error.what()}, {"type", kobold_type(status)}}}};
    case ErrorShape::kOpenAi:
      break;
  }
  Json body = openai::error_answer(error).body;
  if (const auto* http = dynamic_cast<const HttpError*>(&error)) {
    body["error"]["type"] = openai_type(status);
    if (!http->code().empty()) body["error"]["code"] = http->code();
  }
  return body;
}

http::Response json_response(int status, const Json& body) {
  // Texts of clients and models may hold halves of characters; these become U+FFFD.
  return {status,
          {{"Content-Type", "application/json"}},
          body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

void respond_json(http::Exchange& to, const Json& body) { to.respond(json_response(200, body)); }

http::Response error_response(ErrorShape shape, const Error& error) {
  http::Response response = json_response(status_of(error), error_body(shape, error));
  if (response.status == 503) response.fields.push_back({"Retry-After", "5"});
  return response;
}

}  // namespace bl::server
