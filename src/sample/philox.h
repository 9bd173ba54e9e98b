#pragma once
// Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011). Numbers are a function of (key, counter), so a
// sequence draws the same ones in any batch and after any restart.

#include <array>
#include <cstdint>

namespace bl {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Returns the four random words of `counter` under the key `seed`.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint64_t seed) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// The purpose of a number. Draws of tokens and XTC's coin use independent streams.
enum class DrawStream : std::uint32_t { kToken = 0, kExclusion = 1 };

// The uniform number in [0, 1) for a text position, in units of 2^-64: 53 random bits, then zeros.
// `rewinds` (PickArgs::rewinds) gives a position that is drawn again a number of its own.
constexpr std::uint64_t uniform_bits_at(std::uint64_t seed, std::uint64_t position,
                                        DrawStream stream = DrawStream::kToken,
                                        std::uint32_t rewinds = 0) {
  const PhiloxBlock block =
      philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
              static_cast<std::uint32_t>(stream), rewinds},
             seed);
  const std::uint64_t bits = (std::uint64_t{block[0]} << 32) | block[1];
  return bits >> 11 << 11;
}

// The uniform number in [0, 1) for a text position, as a double.
constexpr double uniform_at(std::uint64_t seed, std::uint64_t position,
                            DrawStream stream = DrawStream::kToken, std::uint32_t rewinds = 0) {
  return static_cast<double>(uniform_bits_at(seed, position, stream, rewinds) >> 11) * 0x1p-53;
}

}  // namespace bl
