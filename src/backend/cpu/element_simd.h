#pragma once
// The element-wise kernels of one instruction set, by the names that kernels_simd.cc lists.

#include "backend/cpu/element_kernels.h"

namespace bl::cpu::BL_ISA {

void norm(const NormRow& row);
void embed(const EmbedRow& row);
void activate(const ActivateArgs& args, const float* gate, const float* up, float* out,
              std::int64_t count);
void add(float* x, const float* y, float multiplier, std::int64_t count);
void scale(float* x, float multiplier, float softcap, std::int64_t count);
void clamp(float* x, float limit, std::int64_t count);
void gate(float* x, const float* gate, std::int64_t count);
void rope_table(const RopeAngles& angles, RopeTable* table);
void rope(const RopeTable& table, const RopeRow& row);

inline constexpr ElementKernels kElementKernels{
    .norm = norm,
    .embed = embed,
    .activate = activate,
    .add = add,
    .scale = scale,
    .clamp = clamp,
    .gate = gate,
    .rope_table = rope_table,
    .rope = rope,
};

}  // namespace bl::cpu::BL_ISA
