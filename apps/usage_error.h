#pragma once
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace bl {

// The command line is wrong: exit status 2 instead of 1.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// Throws where the value of an option is not within `least` and `most`.
inline void check_range(const char* flag, std::int64_t value, std::int64_t least,
                        std::int64_t most) {
  if (value < least || value > most) {
    fail_usage("{}: {} is not in {} … {}", flag, value, least, most);
  }
}

}  // namespace bl
