#pragma once
// The one exception of the program.
//
// Three kinds of failure have three means (docs/adr/0002): a bug aborts (BL_CHECK, check.h), an
// operation that failed throws Error, an expected outcome is a return value. Error is caught at
// exactly three edges: the command line's main, a server route, the Python binding.

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace bl {

enum class ErrorCode {
  kInvalidArgument,  // a value given by the user is wrong
  kInvalidFile,      // the bytes of a file (or of a request) break their format
  kNotFound,         // a file, tensor or name does not exist
  kUnsupported,      // well-formed, but nothing here can do it
  kOutOfMemory,      // the plan does not fit
  kLimit,            // a bound was reached (steps, output, context)
  kIo,               // the operating system refused
  kCancelled,        // the user asked to stop
  kDevice,           // the graphics card or its driver failed
};

// `message` is one line: what happened, to which file or value, and what would be right.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The part of fail() that does not depend on the types, kept out of every place that fails.
[[noreturn]] void fail_formatted(ErrorCode code, fmt::string_view format, fmt::format_args args);

// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(code, format, fmt::make_format_args(args...));
}

}  // namespace bl
