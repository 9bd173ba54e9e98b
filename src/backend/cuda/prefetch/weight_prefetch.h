#pragma once
// Codes and scales that a GEMV prefetches to L2 for a GEMM behind it: the first bytes of each
// n_tile that this GEMM reads, except those that it loads itself before its activations are there.
// Producer warps prefetch when all their own copies are issued, since memory would idle between two
// launches (bench/ladder/gemv_i8.md). Pure arithmetic, tested without a card.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/prefetch/key_prefetch.h"

namespace bl::cuda {

struct CodeWeights;

struct WeightPrefetch {
  // A range of every n_tile of a matrix, or of one of its k_splits.
  struct Source {
    const std::byte* codes = nullptr;  // the first n_tile's
    const std::byte* scales = nullptr;
    std::uint32_t n_tile_bytes = 0;  // from one n_tile's codes to the next
    std::uint32_t code_bytes = 0;    // of an n_tile's codes: a multiple of 16
    std::uint32_t scale_bytes = 0;   // all scales of an n_tile
    std::int32_t n_tiles = 0;
  };
  Source sources[kMaxMatrices];
  int count = 0;
};

// The GEMMs that prefetch weights: kQueries makes the queries, and its prefetch is read after
// attention and output projection; kSecond is that output projection, and finds the first bytes
// prefetched; kBesideKeys prefetches keys too; kOther is any other.
enum class WeightPrefetchSite { kQueries, kSecond, kBesideKeys, kOther };

// `next`: the matrices of the GEMM that will read them. Matrices without codes are skipped.
WeightPrefetch plan_weight_prefetch(std::span<const CodeWeights* const> next,
                                    WeightPrefetchSite site);

// Everything that a launch prefetches.
struct Prefetches {
  KeyPrefetch keys;
  WeightPrefetch weights;
};

}  // namespace bl::cuda
