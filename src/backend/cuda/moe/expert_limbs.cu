#include "backend/cuda/moe/expert_limbs.cuh"

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {
namespace {

constexpr int kPackWarps = 8;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Prefetches to L2 what rows of any expert are packed by, a warp an expert: the router has not
// chosen yet, and the tables of a layer come from far when it has.
__device__ __forceinline__ void prefetch_tables(const ExpertLimbArgs& p) {
  const auto warps = static_cast<int>(gridDim.x * gridDim.y) * kPackWarps;
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  for (int e = cta * kPackWarps + warp_index(); e < p.rows.expert_count; e += warps) {
    if (lane_index() != 0) continue;
    const ExpertMatrix& matrix = p.table[e];
    const CodeMatrixView& view = matrix.view;
    prefetch_l2(view.k_blocks, view.k_block_count * static_cast<int>(sizeof(KBlock)));
    prefetch_l2(matrix.feature_of_k,
                view.k_steps * kKStepSize * static_cast<int>(sizeof(std::int32_t)));
  }
}

#endif

// A warp packs one k_block of one row. Waits before it triggers, unlike other kernels: the GEMM
// behind it reads the sorted choices and its weights before it waits itself, so the sorting must be
// complete by then. grid (choices, k_blocks / kPackWarps)
__global__ void __launch_bounds__(kPackWarps * 32)
    pack_expert_limbs_kernel(const __grid_constant__ ExpertLimbArgs p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (p.prefetches) prefetch_tables(p);
#endif
  pdl_wait();
  pdl_trigger();
  const int choice = static_cast<int>(blockIdx.x);
  const bool sorted = p.rows.row_of_choice != nullptr;
  const int chosen = p.rows.experts[choice];
  const bool real = exists(p.rows, chosen);
  if (sorted && !real) return;
  const int row = sorted ? p.rows.row_of_choice[choice] : choice;
  const ExpertMatrix& matrix = p.table[real ? chosen : 0];
  const int index = static_cast<int>(blockIdx.y) * kPackWarps + warp_index();
  if (index >= matrix.view.k_block_count) return;
  const KBlock k_block = matrix.view.k_blocks[index];
  const int token = choice / p.rows.k;
  const float* x = p.x + (p.x_of_tokens ? token : row) * p.x_stride;
  int features[kMaxKBlockSteps];
  load_features(matrix.feature_of_k, k_block, features);
  float values[kMaxKBlockSteps];
#pragma unroll
  for (int u = 0; u < kMaxKBlockSteps; ++u) values[u] = features[u] < 0 ? 0.0f : x[features[u]];
  const int block = row / p.rows.block_rows;
  const LimbRow to(p.limbs + block * limb_block_bytes(p.rows.block_rows, p.k_steps),
                   sorted ? p.rows.rows_of_block[block] : 1, row % p.rows.block_rows);
  float weight = real ? 1.0f : 0.0f;
  if (real && p.weigh) {
    weight = p.rows.weights[token * p.rows.weight_stride + choice % p.rows.k];
  }
  to.store_k_block(k_block, values, weight);
}

}  // namespace

void pack_expert_limbs(ExecContext& ctx, const ExpertLimbArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.choices),
                  static_cast<unsigned>((args.k_blocks + kPackWarps - 1) / kPackWarps));
  launch(shape_of(ctx, grid, kPackWarps * 32), pack_expert_limbs_kernel, args);
}

}  // namespace bl::cuda
