#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace bl::cpu {

// Scratch that kv_write and attention take for heads of so many elements.
std::size_t attention_scratch_bytes(std::int64_t heads, std::int64_t head_dim, int threads);

}  // namespace bl::cpu
