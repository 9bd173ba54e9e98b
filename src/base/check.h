#pragma once
// BL_CHECK: a condition that only a bug can break. It aborts, in every build.
// Never use it on bytes from a file or a socket: those fail() (error.h).

namespace bl {

[[noreturn]] void check_failed(const char* file, int line, const char* expression);

}  // namespace bl

#define BL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::bl::check_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define BL_DCHECK(condition) static_cast<void>(0)
#else
#define BL_DCHECK(condition) BL_CHECK(condition)
#endif
