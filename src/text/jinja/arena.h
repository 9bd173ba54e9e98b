#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

namespace bl::jinja {

// The memory of one parsed template or of one rendering: handed out in order, freed all at once.
//
// Values of a template form graphs, even cyclic ones (a namespace that holds itself), of a depth
// that the template chooses. Without owners there is no chain of destructors that could overflow
// the stack, and nothing leaks. The price is that a rendering frees nothing before its end, so the
// sum of its allocations is bounded. Objects made here are never destroyed: they own no memory but
// the arena's.
class Arena final : public std::pmr::memory_resource {
 public:
  // Throws Error(kLimit) once more than `limit` bytes are allocated in all.
  explicit Arena(std::size_t limit) : limit_(limit) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns uninitialised memory; `alignment` is a power of two.
  void* take(std::size_t bytes, std::size_t alignment) {
    const std::size_t start = (used_ + alignment - 1) & ~(alignment - 1);
    if (start > capacity_ || bytes > capacity_ - start) return take_from_new_chunk(bytes);
    used_ = start + bytes;
    return chunk_ + start;
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    return new (take(sizeof(T), alignof(T))) T{std::forward<Args>(args)...};
  }

  // Returns an uninitialised run of `count` trivial objects.
  template <class T>
  T* array(std::size_t count) {
    return static_cast<T*>(take(count * sizeof(T), alignof(T)));
  }

  // Returns a copy of `text` in the arena.
  std::string_view copy(std::string_view text) {
    if (text.empty()) return {};
    char* place = array<char>(text.size());
    std::memcpy(place, text.data(), text.size());
    return {place, text.size()};
  }

 private:
  void* take_from_new_chunk(std::size_t bytes);
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return take(bytes, alignment);
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::size_t limit_;
  std::size_t total_ = 0;
  std::size_t used_ = 0;
  std::size_t capacity_ = 0;
  char* chunk_ = nullptr;
  std::vector<std::unique_ptr<char[]>> chunks_;
};

}  // namespace bl::jinja
