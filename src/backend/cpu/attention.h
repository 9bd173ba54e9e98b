#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace bl::cpu {

// Scratch bytes that kv_write and attention need for heads of `head_dim` elements.
std::size_t attention_scratch_bytes(std::int64_t heads, std::int64_t head_dim, int threads);

}  // namespace bl::cpu
