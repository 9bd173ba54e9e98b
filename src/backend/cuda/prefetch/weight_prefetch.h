#pragma once
// The codes and scales that a product further behind reads first, but for what it asks for itself
// before its row is there. A product of one token has them brought into the second level of the
// cache when it has asked for all of its own: between two launches memory would have nothing to do
// (bench/ladder/exl2_gemv). Pure arithmetic, tested without a card.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/prefetch/key_prefetch.h"
#include "backend/cuda/scratch_plan.h"

namespace bl::cuda {

struct CodeWeights;

struct WeightPrefetch {
  // Of every strip of a matrix, or of a part of its slots.
  struct Source {
    const std::byte* codes = nullptr;  // that are asked for of the first strip
    const std::byte* scales = nullptr;
    std::uint32_t n_tile_bytes = 0;  // from one strip's codes to the next's
    std::uint32_t code_bytes = 0;    // asked for of a strip's codes: a multiple of 16
    std::uint32_t scale_bytes = 0;   // of a strip, all asked for
    std::int32_t n_tiles = 0;
  };
  Source sources[kMaxMatrices];
  int count = 0;
};

// Products that ask for weights ahead: of queries, behind whose attention and output they are read;
// the output's, which finds the first of them asked for; one that asks for keys, too; any other
// one.
enum class WeightPrefetchSite { kQueries, kSecond, kBesideKeys, kOther };

// Of the matrices of the product that will read them. Those that have no codes are left out.
WeightPrefetch plan_weight_prefetch(std::span<const CodeWeights* const> next,
                                    WeightPrefetchSite site);

// All that a launch asks for ahead.
struct Prefetches {
  KeyPrefetch keys;
  WeightPrefetch weights;
};

}  // namespace bl::cuda
