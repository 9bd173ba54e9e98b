#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bl {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
  std::string hex() const;  // 32 hexadecimal digits, `high` first
};

// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// 2012, and its reference code), fed piece by piece. Without a secret key, as it is used here, it
// finds damage and tells contents apart, but does not withstand collisions made on purpose.
class SipHash {
 public:
  explicit SipHash(std::uint64_t key0 = 0, std::uint64_t key1 = 0);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // Adds a number as eight bytes, lowest first.
  void update(std::uint64_t value);
  Hash128 finish() const;  // the hash of everything added so far; more may follow

 private:
  void round();
  void word(std::uint64_t value);

  std::uint64_t v0_, v1_, v2_, v3_;
  std::array<std::byte, 8> rest_{};  // bytes of an unfinished word
  std::uint64_t length_ = 0;
};

}  // namespace bl
