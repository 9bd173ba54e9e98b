#pragma once
#include <cstddef>

#include "tensor/tensor.h"

namespace bl {

// Scratch memory of one step. Pieces are taken in order and given back all at once, or down to a
// mark. The size is planned before anything is loaded (the `work` line of `bitloom inspect`);
// asking for more than was planned is a bug of the planner and aborts.
class Arena {
 public:
  Arena() = default;
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)) {}

  // Takes an uninitialised, contiguous array, aligned to 64 bytes. It is valid until released.
  TensorView take(DType dtype, Shape shape);
  TensorView take_f32(Shape shape) { return take(DType::kF32, shape); }

  // release_to() gives back everything that was taken after mark() returned its argument.
  std::size_t mark() const { return used_; }
  void release_to(std::size_t mark) { used_ = mark; }
  std::size_t peak() const { return peak_; }  // the most bytes ever in use
  std::size_t capacity() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

// The bytes that `take` uses for `elements` elements, alignment included.
std::size_t arena_bytes(DType dtype, std::int64_t elements);

// Gives back, at the end of a C++ scope, what was taken within it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
  ~ArenaScope() { arena_.release_to(mark_); }

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace bl
