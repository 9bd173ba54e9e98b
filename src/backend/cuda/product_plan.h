#pragma once
// How the work of one launch of products is shared out: a value, made on the host once a
// combination of matrices.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/cuda/cuda_matrix.h"

namespace bl::cuda {

inline constexpr int kProductWarps = 8;  // of a CTA

// A place in the chunks of all strips of all matrices, one after the other.
struct ChunkCursor {
  std::int32_t strip = 0;  // counted over all matrices
  std::int16_t matrix = 0;
  std::uint16_t chunk = 0;  // of the strip
};

// The share of one CTA: its warps' begins and the end, and which CTAs share the strips at its ends.
struct CtaShare {
  ChunkCursor begin[kProductWarps + 1];
  std::int32_t first_owner[2] = {};  // of the first strip, of the last one
  std::int32_t last_owner[2] = {};
  std::int32_t unused[2] = {};
};
static_assert(sizeof(CtaShare) == 96);

// What the plan needs of a matrix.
struct MatrixShape {
  std::int32_t strips = 0;
  std::vector<std::uint32_t> costs;  // [chunks of a strip]
};

// Nearly equal shares for at most `ctas` CTAs, each with a chunk at least.
std::vector<CtaShare> share_product(std::span<const MatrixShape> matrices, int ctas);

// Plans in device memory, by the shapes of the matrices.
class ProductPlans {
 public:
  struct Entry {
    const CtaShare* shares = nullptr;  // device
    int ctas = 0;
  };
  ~ProductPlans();
  ProductPlans() = default;
  ProductPlans(const ProductPlans&) = delete;
  ProductPlans& operator=(const ProductPlans&) = delete;

  Entry find(std::span<const CodeWeights* const> matrices, int ctas);

 private:
  std::map<std::vector<std::uint64_t>, Entry> entries_;
};

}  // namespace bl::cuda
