#pragma once
// How a producer warp learns which matrices to copy: the views of an expert's matrices go from the
// layer's tables to shared memory, where SmemPipeline::produce() reads them. They are loaded while
// the item before is copied.

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/moe/expert_matrix.h"

namespace bl::cuda {

// Sets what does not change between experts, in `args`, which is in shared memory: one thread.
__device__ __forceinline__ void prepare_views(PackedGemmArgs& args, int count) {
  args.gated = count == 2;
  args.count = count;
  args.input_layout_bytes = 0;
  args.first_token = 0;
  for (int i = 0; i < count; ++i) args.matrices[i].input_layout = 0;
}

// All lanes of the producer warp call these functions. `Args` has `count` and `matrices`, each with
// `table` and `first_n_tile`.
class ExpertViews {
 public:
  template <class Args>
  __device__ __forceinline__ void load(const Args& p, int expert) {
    if (lane_index() >= kWords) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p.count) break;
      words_[i] =
          __ldg(reinterpret_cast<const uint2*>(&p.matrices[i].table[expert].view) + lane_index());
    }
  }
  template <class Args>
  __device__ __forceinline__ void store(const Args& p, PackedGemmArgs& args) const {
    __syncwarp();  // the item before has been issued
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p.count) break;
      CodeMatrixView& m = args.matrices[i].view;
      if (lane_index() < kWords) reinterpret_cast<uint2*>(&m)[lane_index()] = words_[i];
      __syncwarp();
      const std::int64_t before = p.matrices[i].first_n_tile;
      if (lane_index() == 0 && before > 0) {  // n_tiles count from the first of this result
        m.codes += before * m.n_tile_bytes;
        m.scales += before * scale_stride(m.kind, m.groups);
        m.n_tiles -= p.matrices[i].first_n_tile;
      }
    }
    __syncwarp();
  }

 private:
  static constexpr int kWords = sizeof(CodeMatrixView) / sizeof(uint2);
  static_assert(sizeof(CodeMatrixView) % sizeof(uint2) == 0 && kWords <= 32);

  uint2 words_[2]{};
};

}  // namespace bl::cuda
