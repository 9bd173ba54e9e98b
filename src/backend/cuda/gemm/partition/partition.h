#pragma once
// How the n_tiles of one launch are divided among CTAs: pure host arithmetic, tested without a
// card.

#include <cstdint>
#include <span>
#include <vector>

namespace bl::cuda {

// A matrix as partitions see it.
struct NTileCosts {
  std::int32_t n_tiles = 0;
  std::uint64_t cost = 0;  // of one n_tile, about its bytes
};

// Divides the n_tiles of all matrices, which count one after the other, into at most `ctas` nearly
// equal ranges, none empty. Returns the first n_tile of each range and, last, the count of all.
std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas);

// The last `count` CTAs of a launch may find their multiprocessors still taken by the launch in
// front, and begin later than the others by the time that n_tiles of cost `cost` take.
struct LateCtas {
  int count = 0;
  std::uint64_t cost = 0;
};

// As above, but late CTAs get fewer n_tiles if the launch then ends sooner.
std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas,
                                            const LateCtas& late);

// Returns the fewest ranges whose longest range is no longer than the longest of `ctas` ranges.
int fewest_cta_ranges(std::span<const NTileCosts> matrices, int ctas);

// A partition for the int8 GEMV, which multiplies kGemvNTiles n_tiles of one matrix at a time.
// Ranges have n_tiles of one matrix only, if the launch then ends sooner.
std::vector<std::int32_t> partition_by_matrix(std::span<const NTileCosts> matrices, int ctas);

// How matrices with different input layouts are partitioned.
struct InputLayoutRequest {
  int ctas = 0;
  bool alone = false;      // for the int8 GEMV, as partition_by_matrix()
  LateCtas late = {};      // for the others
  std::uint64_t cost = 0;  // of making a second input layout, in the costs of n_tiles
};

// Returns ranges with n_tiles of one matrix each, request.ctas at most, if the launch then ends no
// later than with `mixed`, where a range with two matrices packs two input layouts; else `mixed`.
std::vector<std::int32_t> partition_by_input(std::span<const NTileCosts> matrices,
                                             std::vector<std::int32_t> mixed,
                                             const InputLayoutRequest& request);

// Ranges for two k_splits of `n_tiles` n_tiles each, which count one after the other; no range has
// n_tiles of both. Returns an even number of ranges, at most `ctas`, and no more than the longest
// range needs.
std::vector<std::int32_t> partition_k_splits(std::int32_t n_tiles, int ctas);

}  // namespace bl::cuda
