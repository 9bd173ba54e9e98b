#pragma once
// Limits of GEMM launches that plans of memory need too. A number of tokens is the rows of a step.

#include <cstdint>

namespace bl::cuda {

// With more tokens than kMaxPackedTokens, every GEMM with packed codes runs as a large one
// (gemm/large, gemm/wgmma), which may expand weights in memory. With fewer than kFewestLargeTokens
// none does; in between LaunchPlan decides.
inline constexpr std::int64_t kMaxPackedTokens = 64;
inline constexpr std::int64_t kFewestLargeTokens = 17;
// Tokens of one mma.m16n8k16 (its n), and of one skinny launch.
inline constexpr int kTokenTile = 8;
inline constexpr int kMaxSkinnyTokens = 16;
// Rows for which packed activations of `tokens` tokens have room.
constexpr std::int64_t packed_act_rows(std::int64_t tokens) { return (tokens + 31) / 32 * 32; }
// n_tiles · k_splits of a skinny GEMM with split-K, at most.
inline constexpr std::int64_t kMaxSplitKNTiles = 4096;
// k_splits of the wgmma path, and floats of partial sums, at most.
inline constexpr std::int64_t kMaxWgmmaKSplits = 8;
inline constexpr std::int64_t kPartialFloats = kMaxSplitKNTiles * 16 * kMaxPackedTokens;
// Bytes of dequantized weights at a time.
inline constexpr std::int64_t kExpandedBytes = 128 << 20;
// N_tiles of one stage of the int8 GEMV, which a warp multiplies at once.
inline constexpr int kGemvNTiles = 4;
// Matrices of one launch: q, k, v and a gate.
inline constexpr int kMaxMatrices = 4;

}  // namespace bl::cuda
