#pragma once
// GEMM on wgmma with packed codes (EXL2, GPTQ): 17 tokens and more, compute capability 9.0 alone.
// Codes are dequantized in registers into operand A of wgmma.m64nNk16, so nothing is expanded in
// memory. A library of its own, since its code is compiled for sm_90a.
//
// wgmma_plan.h describes tiles, clusters and warp roles. A stage of large tiles holds 256 rows × 64
// k of activations (32,768 bytes), codes of 8 n_tiles and their scales: 37,888 bytes for 4-bit EXL2
// codes. Full barriers count the copy of activations, the lanes that copy codes and the warps that
// make scales; empty barriers count the consumer warps of all CTAs of the cluster.
//
// Bound by the tensor cores: 0.82 of 788 TFLOP/s with EXL2 4.0 and 2,048 tokens on an H200
// (gemm/README.md).

#include "backend/cuda/gemm/wgmma/wgmma_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Whether this build has the kernels and the card can run them.
bool has_wgmma(const DeviceFacts& facts);

// Enqueues a planned launch. With split-K it takes up to kPartialFloats floats of scratch.
void gemm_wgmma_dequant(ExecContext& ctx, const WgmmaPlan& plan);

}  // namespace bl::cuda
