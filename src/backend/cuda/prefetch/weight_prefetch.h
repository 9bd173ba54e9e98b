#pragma once
// Codes and scales that a GEMV asks L2 for on behalf of a GEMM behind it: the first ones that that
// GEMM reads, but for what it asks for itself before its activations are there. The producer warps
// ask when they have asked for all of their own, since memory would have nothing to do between two
// launches (bench/ladder/exl2_gemv). Pure arithmetic, tested without a card.

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
    std::uint32_t n_tile_bytes = 0;  // from one n_tile's codes to the next's
    std::uint32_t code_bytes = 0;    // of an n_tile's codes: a multiple of 16
    std::uint32_t scale_bytes = 0;   // of an n_tile: all
    std::int32_t n_tiles = 0;
  };
  Source sources[kMaxMatrices];
  int count = 0;
};

// The GEMMs that prefetch weights: the one that makes queries, behind whose attention and output
// GEMM they are read; the output GEMM, which finds the first of them prefetched; one that
// prefetches keys too; any other.
enum class WeightPrefetchSite { kQueries, kSecond, kBesideKeys, kOther };

// `next`: the matrices of the GEMM that will read them. Matrices without codes are left out.
WeightPrefetch plan_weight_prefetch(std::span<const CodeWeights* const> next,
                                    WeightPrefetchSite site);

// Everything that a launch prefetches.
struct Prefetches {
  KeyPrefetch keys;
  WeightPrefetch weights;
};

}  // namespace bl::cuda
