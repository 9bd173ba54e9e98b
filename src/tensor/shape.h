#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace bl {

// Up to four dimensions, held inline. The caller keeps products in range: shapes from files are
// checked for overflow where they are parsed (format/).
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    BL_CHECK(sizes.size() <= kMaxRank);
    for (std::int64_t size : sizes) sizes_[static_cast<std::size_t>(rank_++)] = size;
  }
  void append(std::int64_t size) {
    BL_CHECK(rank_ < kMaxRank);
    sizes_[static_cast<std::size_t>(rank_++)] = size;
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return sizes_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= (*this)[i];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[2, 576]"

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace bl
