#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace bl {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "bitloom: internal error at %s:%d: %s\n", file, line, expression);
  std::abort();
}

}  // namespace bl
