#pragma once
#include "tensor/arena.h"

namespace bl::cuda {

// Bytes that `count` elements take of a scratch arena, its padding included.
inline std::size_t f16_bytes(std::int64_t count) { return arena_bytes(DType::kF16, count); }
inline std::size_t f32_bytes(std::int64_t count) { return arena_bytes(DType::kF32, count); }

}  // namespace bl::cuda
