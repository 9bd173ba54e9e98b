#pragma once
// The one place that decides how a GEMM runs: GemmProblem → GemmPlan. Pure host code, tested
// without a card over tokens × formats × compute capabilities × fusions
// (tests/backend_cuda/route_test.cc). run.cc executes the plan and decides nothing.

#include <array>
#include <optional>

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/large/large_plan.h"
#include "backend/cuda/gemm/packed_gemm.h"
#include "backend/cuda/gemm/skinny/skinny_plan.h"

namespace bl::cuda {

enum class GemmKernel : std::uint8_t {
  kGemvI8,        // gemv_i8/: one to four tokens times packed codes
  kSkinnyRegs,    // skinny/: packed codes, activations in registers
  kSkinnySmem,    // skinny/: packed codes, activations in shared memory
  kDenseGemv,     // large/dense_gemv: plain matrix, F32 activations
  kDenseLibrary,  // large/blas_lt: large plain matrix, a few tokens
};

// Outputs of one format in one launch, or one launch for each tokens_per_launch tokens.
struct PackedLaunch {
  GemmKernel kernel = GemmKernel::kSkinnySmem;
  PackedGemm gemm;
  GemvPlan gemv;      // kGemvI8
  SkinnyPlan skinny;  // kSkinnyRegs, kSkinnySmem
};

struct DenseLaunch {
  GemmKernel kernel = GemmKernel::kDenseGemv;
  const MatmulOutput* output = nullptr;
};

// The launches of a slice of rows: either `large`, or dense and packed ones.
struct GemmLaunches {
  std::optional<LargePlan> large;
  std::array<DenseLaunch, kMaxMatrices> dense;
  int dense_count = 0;
  std::array<PackedLaunch, 2> packed;  // EXL2, GPTQ
  int packed_count = 0;
};

// Work that the GEMM cannot fuse runs before or behind it, in the order of the members.
struct GemmPlan {
  bool multiply_x = false;          // x ·= prologue.deferred_mul
  bool reduce_x = false;            // x + Σ prologue.partials, into prologue.sum or scratch
  bool reduce_out = false;          // out += Σ epilogue.partials
  bool normalise = false;           // prologue.norm, into scratch
  std::int64_t rows_at_once = 0;    // the GEMM runs on so many rows at a time
  MatmulArgs core;                  // the GEMM without what runs separately
  GemmLaunches launches;            // of `core`; empty where rows_at_once < tokens
  bool activate_gate = false;       // epilogue.activation on the gate alone
  bool activate = false;            // epilogue.activation
  bool clear_partials_out = false;  // the GEMM left no partial sums: zero them
};

GemmPlan choose_route(const GemmProblem& problem, PartitionCache& partitions);

// Plans the launches of a GEMM that has nothing left to peel off.
GemmLaunches plan_launches(const GemmProblem& problem, PartitionCache& partitions);

// Returns what layers may fuse (OpTable::gemm_fusion). problem.gemm is not read.
GemmFusion fusion_offered(const GemmProblem& problem, PartitionCache& partitions,
                          const GemmFusionQuery& query);

// Whether the StagedInput of a GEMM is in the fragment order of gemm_skinny_regs(), and not
// binary16 rows of a large GEMM.
bool is_staged_fragments(const GemmProblem& problem, const StagedInput& staged);

}  // namespace bl::cuda
