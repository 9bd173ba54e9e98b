#pragma once
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/element_kernels.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/matmul_kernels.h"

namespace bl::cpu {

// All kernels of one instruction set: plain functions on plain data. Each op has its list in a
// header of its own; kernels_simd.cc joins them.
struct Kernels {
  MatmulKernels matmul;
  ElementKernels element;
  AttentionKernels attention;
};

// Returns the kernels for an instruction set of available_isas().
const Kernels& kernels_for(Isa isa);

}  // namespace bl::cpu
