#include "parquet/run_decoder.h"

#include "base/error.h"

namespace bl::parquet {

void RunDecoder::fail_damaged() const {
  fail(ErrorCode::kInvalidFile, "{} is damaged: its levels or indices end too early", what_);
}

void RunDecoder::begin_run() {
  std::uint64_t head = 0;
  for (int shift = 0;; shift += 7) {
    if (at_ >= bytes_.size() || shift > 28) fail_damaged();
    const auto byte = static_cast<std::uint64_t>(bytes_[at_++]);
    head |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  const auto bits = static_cast<std::uint64_t>(bits_);
  is_packed_ = (head & 1) != 0;
  // A packed run is of whole groups of eight numbers.
  left_ = is_packed_ ? (head >> 1) * 8 : head >> 1;
  const std::uint64_t size = is_packed_ ? (head >> 1) * bits : (bits + 7) / 8;
  if (size > bytes_.size() - at_) fail_damaged();
  packed_bit_ = at_ * 8;
  repeated_ = 0;
  for (std::uint64_t i = 0; !is_packed_ && i < size; ++i) {
    repeated_ |= static_cast<std::uint32_t>(bytes_[at_ + i]) << (8 * i);
  }
  at_ += static_cast<std::size_t>(size);
}

std::uint32_t RunDecoder::packed_number() {
  std::uint32_t number = 0;
  for (int i = 0; i < bits_; ++i, ++packed_bit_) {
    const auto byte = static_cast<std::uint32_t>(bytes_[packed_bit_ / 8]);
    number |= (byte >> (packed_bit_ % 8) & 1) << i;
  }
  return number;
}

std::uint32_t RunDecoder::next() {
  while (left_ == 0) begin_run();
  --left_;
  return is_packed_ ? packed_number() : repeated_;
}

}  // namespace bl::parquet
