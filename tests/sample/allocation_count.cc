#include "allocation_count.h"

#include <cstdlib>
#include <new>

namespace {
long& count() {
  thread_local long calls = 0;
  return calls;
}
}  // namespace

namespace bl::test {
long allocation_count() { return count(); }
}  // namespace bl::test

// Inlined, they would look to GCC as if what new returned went to another allocator's free().
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++count();
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++count();
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
