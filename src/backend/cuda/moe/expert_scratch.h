#pragma once
// Memory for the experts of a layer: pure arithmetic, so that a plan needs no card.

#include <cstddef>
#include <cstdint>

namespace bl::cuda {

// Calls of `experts` with many tokens are divided into slices that need no more than this, unless
// one token needs more.
inline constexpr std::size_t kExpertSliceBytes = std::size_t{256} << 20;

// Scratch memory of a call of `experts`, from the properties of its matrices.
struct ExpertScratch {
  std::int64_t experts = 0;
  std::int64_t k = 0;              // experts of a token
  std::int64_t input_k_steps = 0;  // of a packed row of x, in each input layout
  std::int64_t input_layouts = 0;
  std::int64_t first_width = 0;     // columns of gate and up
  std::int64_t hidden_k_steps = 0;  // of a packed hidden row
  std::int64_t hidden_width = 0;    // of a plain hidden row
  std::int64_t out = 0;

  // Row strides are rounded up to whole float4s.
  static std::int64_t rounded(std::int64_t width) { return (width + 3) / 4 * 4; }
  // Returns an upper bound for `tokens` tokens, whatever the router chooses.
  std::size_t bytes(std::int64_t tokens) const;
};

// Returns the bytes of the tables in which kernels find a layer's experts.
std::size_t expert_table_bytes(std::int64_t experts);

}  // namespace bl::cuda
