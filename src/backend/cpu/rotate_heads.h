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

// Applies rope() to some heads of one token. `args` says everything but where the heads are; they
// must have as many elements as those of args.x.
void rotate_heads(const ElementKernels& kernels, const RopeArgs& args, std::int64_t token,
                  std::span<const HeadRange> ranges);

}  // namespace bl::cpu
