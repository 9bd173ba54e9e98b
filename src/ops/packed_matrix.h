#pragma once
#include <cstddef>
#include <cstdint>

namespace bl {

// A linear's weights in the layout that one backend's kernels like; made by Backend::pack and
// opaque to everybody else.
class PackedMatrix {
 public:
  PackedMatrix(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}
  virtual ~PackedMatrix() = default;
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }  // columns a matmul writes (padding cut)
  virtual std::size_t bytes() const = 0;     // device memory held

 private:
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace bl
