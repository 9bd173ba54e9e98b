#include "base/sip_hash.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace bl {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

SipHash::SipHash(std::uint64_t key0, std::uint64_t key1)
    : v0_(key0 ^ 0x736f6d6570736575u),
      v1_(key1 ^ 0x646f72616e646f6du ^ 0xee),
      v2_(key0 ^ 0x6c7967656e657261u),
      v3_(key1 ^ 0x7465646279746573u) {}

void SipHash::round() {
  v0_ += v1_;
  v1_ = std::rotl(v1_, 13) ^ v0_;
  v0_ = std::rotl(v0_, 32);
  v2_ += v3_;
  v3_ = std::rotl(v3_, 16) ^ v2_;
  v0_ += v3_;
  v3_ = std::rotl(v3_, 21) ^ v0_;
  v2_ += v1_;
  v1_ = std::rotl(v1_, 17) ^ v2_;
  v2_ = std::rotl(v2_, 32);
}

void SipHash::word(std::uint64_t value) {
  v3_ ^= value;
  round();
  round();
  v0_ ^= value;
}

void SipHash::update(std::span<const std::byte> bytes) {
  const auto load = [](const std::byte* from) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  const std::size_t begun = length_ % 8;
  length_ += bytes.size();
  if (begun > 0) {
    const std::size_t taken = std::min(8 - begun, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(begun));
    bytes = bytes.subspan(taken);
    if (begun + taken < 8) return;
    word(load(rest_.data()));
  }
  while (bytes.size() >= 8) {
    word(load(bytes.data()));
    bytes = bytes.subspan(8);
  }
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

void SipHash::update(std::uint64_t value) {
  update(std::as_bytes(std::span<const std::uint64_t, 1>(&value, 1)));
}

Hash128 SipHash::finish() const {
  SipHash end = *this;
  std::uint64_t last = length_ << 56;
  for (std::size_t i = 0; i < length_ % 8; ++i) {
    last |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
  }
  end.word(last);
  const auto rounds = [&] {
    for (int i = 0; i < 4; ++i) end.round();
    return end.v0_ ^ end.v1_ ^ end.v2_ ^ end.v3_;
  };
  Hash128 hash;
  end.v2_ ^= 0xee;
  hash.low = rounds();
  end.v1_ ^= 0xdd;
  hash.high = rounds();
  return hash;
}

}  // namespace bl
