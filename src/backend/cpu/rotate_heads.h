#pragma once
#include <cstdint>
#include <span>

#include "backend/cpu/element_kernels.h"
#include "ops/attention.h"

namespace bl::cpu {

// Consecutive heads of one token.
struct HeadRange {
  float* first = nullptr;
  std::int64_t heads = 0;
};

// rope() of some heads of one token, whose elements are as many as those of args.x: what `args`
// says about everything but the tensor.
void rotate_heads(const ElementKernels& kernels, const RopeArgs& args, std::int64_t token,
                  std::span<const HeadRange> ranges);

}  // namespace bl::cpu
