#pragma once
#include <fmt/format.h>

#include <cstdint>
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

// A prompt that leaves no room for an answer. The message has the words by which clients know it.
class ContextOverflow : public Error {
 public:
  ContextOverflow(std::int64_t prompt_tokens, std::int64_t context);
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t context() const { return context_; }  // most tokens of a prompt and its answer

 private:
  std::int64_t prompt_tokens_;
  std::int64_t context_;
};

// Throws RequestError with a formatted message.
template <class... Args>
[[noreturn]] void fail_at(ErrorCode code, std::string param, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw RequestError(code, std::move(param), fmt::format(format, std::forward<Args>(args)...));
}

// Calls read(object), and turns an Error into a RequestError that blames a member of the object.
//
// The rooms below name the wrong member only in the text of their message. So the object is read
// again while its members are added one by one; the first that brings up the same message is to
// blame. Where there is none, throws the Error unchanged.
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

// The answer to a failed request.
struct ErrorAnswer {
  int status = 500;  // of HTTP
  Json body;         // {error: {message, type, param, code}}
};
ErrorAnswer error_answer(const Error& error);

}  // namespace bl::openai
