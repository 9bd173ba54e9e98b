#include "failing_new.h"

#include <cstdlib>
#include <new>

namespace bl::test {

bool FailingNew::counting = false;
std::int64_t FailingNew::left = 0;
std::int64_t FailingNew::bytes = 0;

}  // namespace bl::test

using bl::test::FailingNew;

void* operator new(std::size_t bytes) {
  if (FailingNew::counting) {
    FailingNew::bytes += static_cast<std::int64_t>(bytes);
    if (--FailingNew::left == 0) throw std::bad_alloc();
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
