#pragma once
// BL_CHECK aborts, in every build, when its condition is false. It is for conditions that only a
// bug can break; bytes from a file or a socket are refused with fail() instead (error.h). BL_DCHECK
// does the same in debug builds and nothing in release builds.

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
