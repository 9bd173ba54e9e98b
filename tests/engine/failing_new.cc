#include "failing_new.h"

#include <cstdlib>
#include <new>

namespace bl::test {

bool FailingNew::counting = false;
std::int64_t FailingNew::left = 0;
std::int64_t FailingNew::bytes = 0;

namespace {

// Null where it is to fail.
void* counted_memory(std::size_t bytes) {
  if (FailingNew::counting) {
    FailingNew::bytes += static_cast<std::int64_t>(bytes);
    if (--FailingNew::left == 0) return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace
}  // namespace bl::test

void* operator new(std::size_t bytes) {
  void* memory = bl::test::counted_memory(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// A library may bring its own of this one, which would not match our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bl::test::counted_memory(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
