#include "parquet/snappy.h"

#include <utility>

#include "base/error.h"

namespace bl::parquet {
namespace {

class SnappyBlock {
 public:
  SnappyBlock(std::span<const std::byte> block, std::uint64_t size, const std::string& what)
      : block_(block), size_(size), what_(what) {}

  std::vector<std::byte> decompress() {
    if (length() != size_) fail_damaged();
    // Three bytes copy 64 at most, so that no block says more than it can hold.
    if (size_ / 22 > block_.size()) fail_damaged();
    out_.reserve(static_cast<std::size_t>(size_));
    while (at_ < block_.size()) element();
    if (out_.size() != size_) fail_damaged();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail_damaged() const {
    fail(ErrorCode::kInvalidFile, "{} is damaged: it is no block of Snappy of {} bytes", what_,
         size_);
  }

  // `bytes` bytes, lowest first.
  std::uint32_t number(int bytes) {
    std::uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) {
      if (at_ >= block_.size()) fail_damaged();
      value |= static_cast<std::uint32_t>(block_[at_++]) << (8 * i);
    }
    return value;
  }

  std::uint64_t length() {
    std::uint64_t value = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
      const std::uint32_t byte = number(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail_damaged();
  }

  void element() {
    const std::uint32_t tag = number(1);
    const std::uint32_t upper = tag >> 2;
    switch (tag & 3) {
      case 0:
        return literal(upper < 60 ? upper + 1
                                  : std::uint64_t{number(static_cast<int>(upper) - 59)} + 1);
      case 1:
        return copy((upper & 7) + 4, (upper >> 3 << 8) | number(1));
      case 2:
        return copy(upper + 1, number(2));
      default:
        return copy(upper + 1, number(4));
    }
  }

  void literal(std::uint64_t bytes) {
    if (bytes > block_.size() - at_ || bytes > size_ - out_.size()) fail_damaged();
    const auto begin = block_.begin() + static_cast<std::ptrdiff_t>(at_);
    out_.insert(out_.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
    at_ += static_cast<std::size_t>(bytes);
  }

  void copy(std::uint32_t bytes, std::uint32_t offset) {
    if (offset == 0 || offset > out_.size() || bytes > size_ - out_.size()) fail_damaged();
    // The copy may read what it has just written.
    for (std::uint32_t i = 0; i < bytes; ++i) out_.push_back(out_[out_.size() - offset]);
  }

  std::span<const std::byte> block_;
  std::uint64_t size_;
  const std::string& what_;
  std::size_t at_ = 0;
  std::vector<std::byte> out_;
};

}  // namespace

std::vector<std::byte> decompress_snappy(std::span<const std::byte> block, std::uint64_t size,
                                         const std::string& what) {
  return SnappyBlock(block, size, what).decompress();
}

}  // namespace bl::parquet
