#include "server/request_body.h"

#include "api/request_error.h"
#include "api/request_fields.h"

namespace bl::server {

std::string text_in(const OrderedJson& body, const char* key) {
  const OrderedJson* value = openai::given(body, key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} should be a text", key);
  }
  return value->get<std::string>();
}

std::string needed_text(const OrderedJson& body, const char* key) {
  std::string text = text_in(body, key);
  if (text.empty()) openai::fail_at(ErrorCode::kInvalidArgument, key, "{} is missing", key);
  return text;
}

double number_in(const OrderedJson& body, const char* key, double otherwise) {
  const OrderedJson* value = openai::given(body, key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} should be a number", key);
  }
  return value->get<double>();
}

std::int64_t count_in(const OrderedJson& body, const char* key, std::int64_t otherwise) {
  const OrderedJson* value = openai::given(body, key);
  if (value == nullptr) return otherwise;
  constexpr std::int64_t kMost = INT32_MAX;
  const bool fits = value->is_number_integer() && value->get<double>() >= -1 &&
                    value->get<double>() <= static_cast<double>(kMost);
  if (!fits) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} should be a whole number up to {}", key,
                    kMost);
  }
  return value->get<std::int64_t>();
}

OrderedJson optional_body(const Call& call) {
  if (call.request().body.find_first_not_of(" \t\r\n") == std::string::npos) {
    return OrderedJson::object();
  }
  return call.body();
}

}  // namespace bl::server
