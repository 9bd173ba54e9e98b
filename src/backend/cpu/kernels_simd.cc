// All kernels of one instruction set.

#include "backend/cpu/attention_simd.h"
#include "backend/cpu/element_simd.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/quantized_simd.h"

namespace bl::cpu::BL_ISA {

extern const Kernels kKernels;
const Kernels kKernels{
    .matmul = {.quantize = quantize,
               .quantized_product = quantized_product,
               .matmul_dense = matmul_dense,
               .row_tile_step = kRowTiles,
               .tile_step = kBlockTiles,
               .column_step = kDenseColumns},
    .element = kElementKernels,
    .attention = kAttentionKernels,
};

}  // namespace bl::cpu::BL_ISA
