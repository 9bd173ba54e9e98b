#pragma once
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/element_kernels.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/matmul_kernels.h"

namespace bl::cpu {

// All kernels of one instruction set: plain functions on plain data. Each op keeps its list in a
// header of its own; kernels_simd.cc joins them.
struct Kernels {
  MatmulKernels matmul;
  ElementKernels element;
  AttentionKernels attention;
};

// Kernels for an instruction set that available_isas() names.
const Kernels& kernels_for(Isa isa);

}  // namespace bl::cpu
