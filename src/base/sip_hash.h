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
  std::string hex() const;  // 32 digits
};

// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// 2012, and its reference code), taken piece by piece. Without a secret key, as here, it finds
// damage and tells contents apart; it does not stop whoever makes collisions on purpose.
class SipHash {
 public:
  explicit SipHash(std::uint64_t key0 = 0, std::uint64_t key1 = 0);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // A number as eight bytes, the lowest first.
  void update(std::uint64_t value);
  Hash128 finish() const;  // of what has come so far

 private:
  void round();
  void word(std::uint64_t value);

  std::uint64_t v0_, v1_, v2_, v3_;
  std::array<std::byte, 8> rest_{};  // of an unfinished word
  std::uint64_t length_ = 0;
};

}  // namespace bl
