#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace bl::openai {

// An error that one field of a request's body is to blame for.
class RequestError : public Error {
 public:
  RequestError(ErrorCode code, std::string param, const std::string& message)
      : Error(code, message), param_(std::move(param)) {}
  // The path of the field, as "top_p" or "messages[2].content".
  const std::string& param() const { return param_; }

 private:
  std::string param_;
};

// Throws RequestError with a formatted message.
template <class... Args>
[[noreturn]] void fail_at(ErrorCode code, std::string param, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw RequestError(code, std::move(param), fmt::format(format, std::forward<Args>(args)...));
}

// Calls read(object), and blames a member of the object for an Error that it throws.
//
// The rooms below say in words only which of many members is wrong. So the object is read again
// with one member after the other added to it, and the member with which that begins to fail in the
// same way is the one.
template <class Object, class Read>
void read_or_blame(const Object& object, Read&& read) {
  try {
    read(object);
  } catch (const Error& error) {
    constexpr std::size_t kMostMembers = 200;  // of an honest request; the work grows quadratically
    if (object.size() > kMostMembers) throw;
    Object part = Object::object();
    for (const auto& [key, value] : object.items()) {
      part[key] = value;
      try {
        read(part);
      } catch (const Error& other) {
        if (std::string_view(other.what()) != error.what()) continue;
        throw RequestError(error.code(), key, error.what());
      }
    }
    throw;
  }
}

// What a failed request is answered with.
struct ErrorAnswer {
  int status = 500;  // of HTTP
  Json body;         // {error: {message, type, param, code}}
};
ErrorAnswer error_answer(const Error& error);

}  // namespace bl::openai
