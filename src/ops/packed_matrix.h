#pragma once
#include <cstddef>
#include <cstdint>

namespace bl {

// The weights of a linear layer in the layout that one backend's kernels read; made by
// Backend::pack, and opaque to everybody else.
class PackedMatrix {
 public:
  PackedMatrix(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}
  virtual ~PackedMatrix() = default;
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }  // columns that a matmul writes, without padding
  virtual std::size_t bytes() const = 0;     // device memory held

 private:
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace bl
