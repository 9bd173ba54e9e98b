#pragma once
// The one exception of the program.
//
// Three kinds of failure have three means (docs/adr/0002): a bug aborts (BL_CHECK, check.h), an
// operation that failed throws Error, an expected outcome is a return value. Three edges report an
// Error to the user: the command line's main, a server route, the Python binding. Code in between
// catches it only to add what it knows (a flag, a line number) or to fail one of many requests.

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace bl {

enum class ErrorCode {
  kInvalidArgument,  // a value given by the user is wrong
  kInvalidFile,      // the bytes of a file (or of a request) break their format
  kNotFound,         // a file, tensor or name does not exist
  kUnsupported,      // the input is well-formed, but bitloom cannot do it
  kOutOfMemory,      // an allocation failed, or the plan does not fit
  kLimit,            // a bound was reached (steps, output, context)
  kIo,               // the operating system refused an operation
  kCancelled,        // the user asked to stop
  kDevice,           // the graphics card or its driver failed
};

// `message` is one line that says what happened, to which file or value, and what would be right.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The part of fail() that is no template, so that it is compiled only once.
[[noreturn]] void fail_formatted(ErrorCode code, fmt::string_view format, fmt::format_args args);

// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(code, format, fmt::make_format_args(args...));
}

}  // namespace bl
