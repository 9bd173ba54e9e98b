#include <algorithm>
#include <iterator>
#include <type_traits>

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/gemm_state.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_pipeline.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/gemv_i8/k_block_pair_mma.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_input.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kConsumerThreads + 32;  // the last warp is the producer
// Groups of n_tiles whose sums wait to be reduced together.
template <int Tokens>
constexpr int kMaxWaiting = Tokens == 1 ? 2 : 1;
// Partial sums of a warp for a group of n_tiles.
template <int Tokens>
constexpr int kWarpSums = kGemvNTiles* kNTileColumns* Tokens;
// N_tiles of a group whose sums one lane owns: with one token, one n_tile of each pair
// (pick_n_tile); with several tokens, all n_tiles of one token.
template <int Tokens, int NTiles>
constexpr int kOwnNTiles = Tokens == 1 ? (NTiles + 1) / 2 : NTiles;
template <int Tokens>
using LaneTotals = float[kOwnNTiles<Tokens, kGemvNTiles>][2];

struct Launch {
  GemvPipelineShape pipeline;
  // In shared memory, behind Shared and the limbs: the k_blocks of all matrices, and the pipeline.
  int tables_at = 0;
  int pipeline_offset = 0;
  int token_stride = 0;           // bytes of one token's limbs
  bool one_input_layout = false;  // see has_one_input_layout
  bool padded = false;            // see is_padded
  GemvLaunchPlan plan;
  PackedGemmArgs args;
  Prefetches prefetch;
};

// Whether some matrix has k without an input feature.
bool is_padded(const PackedGemmArgs& args) {
  return std::any_of(args.matrices, args.matrices + args.count,
                     [](const PackedGemmMatrix& m) { return m.padded; });
}

// Where a thread stores its result for a group, and what it adds to it. Kept in shared memory,
// because registers for it were spilled.
struct alignas(16) ResultTarget {
  float* to;  // null: this thread has no result
  float there;
  float partial;
};

// The fixed part of shared memory, in front of everything else.
template <int Tokens>
struct alignas(128) Shared {
  std::uint64_t barriers[kGemvBarriers];
  RowFactors<Tokens> factors;
  // For groups whose sums wait to be reduced, an entry a thread.
  ResultTarget targets[kMaxWaiting<Tokens>][kWarpSums<Tokens>];
  int columns[kMaxWaiting<Tokens>][kWarpSums<Tokens>];  // column · kMaxMatrices + matrix
  float warp_sums[2][kMaxWaiting<Tokens>][kConsumerWarps][kWarpSums<Tokens>];
  // For pairs of k_blocks: what one k_block has as limbs of the other's k_steps. Right in front of
  // the input.
  alignas(128) uint4 zeros[kInputZeroBytes / sizeof(uint4)];
};
static_assert(sizeof(Shared<1>) == offsetof(Shared<1>, zeros) + kInputZeroBytes);
static_assert(sizeof(Shared<1>) == gemv_fixed_bytes(1) &&
              sizeof(Shared<kGemvTokens>) == gemv_fixed_bytes(kGemvTokens));

struct LimbStrides {
  int token;       // bytes from one token's limbs to the next one's
  int limb_scale;  // bytes from a layout's limbs to its limb scales
  int tokens;
};

// Returns the reader of a lane's limbs, from the k_block's first k_step on. Lanes of tokens that do
// not exist read the last one's; their results are not stored.
template <int Tokens>
__device__ __forceinline__ auto limb_reader(const std::byte* first_k_step,
                                            const LimbStrides& strides) {
  const int lane = lane_index();
  if constexpr (Tokens == 1) {
    return LimbReader(first_k_step, lane);
  } else {
    return TokensReader(first_k_step, min(lane / 8, strides.tokens - 1) * strides.token, lane);
  }
}

// totals += this warp's share of the stage's k_blocks: every kConsumerWarps-th from `next` on.
template <class Scales, WidthSet kWidths, int NTiles, int Tokens>
__device__ __forceinline__ void multiply_copy_block(const CodeMatrixView& m,
                                                    const StageView& copy_block,
                                                    const LimbStrides& strides, int& next,
                                                    LaneTotals<Tokens>& totals) {
  const int lane = lane_index();
  constexpr int kOwn = kOwnNTiles<Tokens, NTiles>;
  int scales_at[kOwn];
#pragma unroll
  for (int p = 0; p < kOwn; ++p) {
    const int n_tile = Tokens == 1 ? 2 * p + (owns_second_n_tile() ? 1 : 0) : p;
    scales_at[p] = min(n_tile, copy_block.n_tiles - 1) * copy_block.scale_stride;
  }
  // The offset of the token of this lane's sums.
  const int sum_token = Tokens == 1 ? 0 : min(lane % 4, strides.tokens - 1) * strides.token;
  for (; next < copy_block.k_blocks; next += kConsumerWarps) {
    KBlock k_block;
    *reinterpret_cast<uint4*>(&k_block) = copy_block.k_block_words[next];
    LimbSums<NTiles> sums;
    const std::byte* input = copy_block.fragments + k_block.first_k_step * kInputKStepBytes;
    multiply_limbs<kWidths>(k_block.bits,
                            {copy_block.codes + k_block.offset * k_step_bytes(1),
                             copy_block.code_stride, copy_block.n_tiles, k_block.k_steps},
                            limb_reader<Tokens>(input, strides), sums);
    const Scales scales(m, k_block, lane, 1.0f);
    const float2 limb_scale =
        LimbScale::of_lane(copy_block.fragments + strides.limb_scale +
                               k_block.first_k_step * LimbScale::kBytes + sum_token,
                           Tokens == 1 ? lane : 0);
    const std::byte* at = copy_block.scales + k_block.group * Scales::bytes(m.kind);
#pragma unroll
    for (int p = 0; p < kOwn; ++p) {
      const LaneScales own_scales = scales.of(at + scales_at[p], lane);
      if constexpr (Tokens == 1) {
        int own[4];
        pick_n_tile(sums.at[2 * p], sums.at[2 * p + 1 < NTiles ? 2 * p + 1 : 2 * p], own);
        add_scaled<kWidths>(own_scales, limb_scale, own, totals[p]);
      } else {
        add_scaled<kWidths>(own_scales, limb_scale, sums.at[p], totals[p]);
      }
    }
  }
}

// Stores a warp's sums as [n_tiles][tokens][16]; clears the totals. With one token, adds the two
// halves of K.
template <int Tokens>
__device__ __forceinline__ void store_warp_sums(LaneTotals<Tokens>& totals, float* own_sums) {
  const int lane = lane_index();
  if constexpr (Tokens > 1) {
    static_assert(Tokens == 4);
    float* own = own_sums + lane % 4 * kNTileColumns + lane / 4;
#pragma unroll
    for (int i = 0; i < kGemvNTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        own[i * Tokens * kNTileColumns + 8 * h] = totals[i][h];
        totals[i][h] = 0.0f;
      }
    return;
  }
  // Lanes t = 2, 3 own sums of the second n_tile of a pair.
  const int column = lane % 4 / 2 * kNTileColumns + lane / 4;
#pragma unroll
  for (int p = 0; p < kOwnNTiles<Tokens, kGemvNTiles>; ++p)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = totals[p][h] + __shfl_xor_sync(kAllLanes, totals[p][h], 1);
      if (lane % 2 == 0) own_sums[2 * p * kNTileColumns + 8 * h + column] = sum;
      totals[p][h] = 0.0f;
    }
}

template <class Scales, WidthSet kWidths, int Tokens, GemvVariant kVariant, bool kPairs>
class GemvConsumer {
 public:
  // What a consumer of pairs keeps about its lane; empty otherwise.
  struct NoLane {};
  using Lane = std::conditional_t<kPairs, PairLane, NoLane>;

  __device__ __forceinline__ GemvConsumer(Shared<Tokens>& shared, GemvPipeline& pipeline,
                                          const Lane& lane)
      : shared_(shared), pipeline_(pipeline), lane_(lane) {}

  // Multiplies a CTA's range, whose input is packed.
  __device__ __forceinline__ void run(const PackedGemmArgs& args, const GemvInput& input,
                                      const std::byte* tables) {
    int next = warp_index();
    int waiting = 0;
    while (true) {
      const std::uint32_t load = pipeline_.wait();
      const int k_blocks = static_cast<int>(load & 0xffu);
      const int flags = static_cast<int>(load >> 16);
      if (next < k_blocks || flags != 0) {
        multiply(args, input, tables, next, waiting);
      }
      next -= k_blocks;
      if ((flags & kEndsNTiles) == 0) {
        pipeline_.release();
        continue;
      }
      pipeline_.release();
      float* own_sums = shared_.warp_sums[half_][waiting][warp_index()];
      if constexpr (kPairs) {
        store_pair_warp_sums(totals_, own_sums);
      } else {
        store_warp_sums<Tokens>(totals_, own_sums);
      }
      ++waiting;
      if (waiting < kMaxWaiting<Tokens> && (flags & kEndsCtaRange) == 0) continue;
      consumer_sync();
      for (int i = 0; i < waiting; ++i) store(args, i);
      if ((flags & kEndsCtaRange) != 0) return;
      // Switch buffers: a warp can only write this one again behind the next barrier, after these
      // reads.
      half_ ^= 1;
      waiting = 0;
    }
  }

 private:
  // Multiplies this warp's k_blocks of the stage, and moves `next` past them.
  __device__ __forceinline__ void multiply(const PackedGemmArgs& args, const GemvInput& input,
                                           const std::byte* tables, int& next, int waiting) {
    StageView copy_block;
    pipeline_.view(input.limbs, tables, copy_block);
    const CodeMatrixView& m = args.matrices[copy_block.matrix].view;
    if ((copy_block.flags & kEndsNTiles) != 0) find_target(args, copy_block.matrix, waiting);
    const auto multiply_n_tiles = [&]<int kNTiles>(std::integral_constant<int, kNTiles>) {
      if constexpr (kPairs) {
        multiply_copy_block_pairs<kWidths, kNTiles>(lane_, copy_block, input.limb_scale_at, next,
                                                    totals_);
      } else {
        const LimbStrides strides{input.token_stride, input.limb_scale_at, args.tokens};
        multiply_copy_block<Scales, kWidths, kNTiles, Tokens>(m, copy_block, strides, next,
                                                              totals_);
      }
    };
    if (copy_block.n_tiles <= 2) {
      multiply_n_tiles(std::integral_constant<int, 2>{});
    } else if (copy_block.n_tiles == 3) {
      multiply_n_tiles(std::integral_constant<int, 3>{});
    } else {
      multiply_n_tiles(std::integral_constant<int, kGemvNTiles>{});
    }
  }
  // Called at a group's last stage, so that behind the last barrier only the sums are missing. The
  // addends arrive by cp.async meanwhile.
  __device__ __forceinline__ void find_target(const PackedGemmArgs& args, int matrix, int waiting) {
    const NTileRange n_tiles = pipeline_.n_tiles();
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= kWarpSums<Tokens>) return;
    ResultTarget& target = shared_.targets[waiting][e];
    const ResultIndex index = index_of(matrix, n_tiles, e);
    const bool has_one =
        e < n_tiles.count * kNTileColumns * Tokens && (Tokens == 1 || index.token < args.tokens);
    float* to = has_one ? result_at<Tokens == 1>(index, args) : nullptr;
    target.to = to;
    shared_.columns[waiting][e] = index.column * kMaxMatrices + matrix;
    if (!args.accumulate || to == nullptr) return;
    const PackedGemmMatrix& m = args.matrices[matrix];
    fetch(target.there, to, !m.fresh);
    fetch(target.partial, m.partial + index.token * std::int64_t{m.view.out} + index.column,
          m.partial != nullptr && !m.fresh);
    commit_copies();
  }
  // to = *from if present, else 0; complete after wait_copies().
  __device__ __forceinline__ static void fetch(float& to, const float* from, bool present) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    copy_or_clear<4>(shared_address(&to), from, present);
#else
    to = present ? *from : 0.0f;
#endif
  }

  // Epilogue: reduces the sums of all warps in a fixed order. For gated GEMMs a thread has the same
  // columns of both matrices.
  __device__ __forceinline__ void store(const PackedGemmArgs& args, int waiting) {
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= kWarpSums<Tokens>) return;
    const ResultTarget& target = shared_.targets[waiting][e];
    float* to = target.to;
    if (to == nullptr) return;
    const int token = Tokens == 1 ? 0 : e / kNTileColumns % Tokens;
    float value = sum_warps(shared_.warp_sums[half_][waiting][0], kWarpSums<Tokens>, e) *
                  shared_.factors.of[token] * args.multiplier;
    const int column = shared_.columns[waiting][e];
    const ResultIndex index{column % kMaxMatrices, token, column / kMaxMatrices};
    if (!finish_result<is_plain(kVariant)>(index, args, gate_, value)) return;
    if (kVariant != GemvVariant::kPlain && args.gate_alone && index.matrix == 0) {
      value = act<Activation::kSilu>(args.activation, value);
    }
    if (args.accumulate) {
      wait_copies<0>();
      value += target.there + target.partial;
    }
    *to = value;
  }
  // Returns the matrix, token and column of sum `e` of a group.
  __device__ __forceinline__ static ResultIndex index_of(int matrix, const NTileRange& n_tiles,
                                                         int e) {
    const int first = n_tiles.first * kNTileColumns;
    if constexpr (Tokens == 1) return {matrix, 0, first + e};
    return {matrix, e / kNTileColumns % Tokens,
            first + e / (kNTileColumns * Tokens) * kNTileColumns + e % kNTileColumns};
  }

  Shared<Tokens>& shared_;
  GemvPipeline& pipeline_;
  Lane lane_;
  std::conditional_t<kPairs, PairTotals, LaneTotals<Tokens>> totals_ = {};
  float gate_ = 0.0f;
  int half_ = 0;
};

// Copies the k_blocks of all matrices, or their pairs, to where stages look for them; complete
// after wait_copies().
template <bool kPairs>
__device__ __forceinline__ void copy_tables(const PackedGemmArgs& args, std::byte* tables) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    std::byte* to = tables + args.matrices[i].k_blocks_at;
    const void* from = m.k_blocks;
    if (kPairs) from = m.pairs;
    const int bytes = table_bytes(m, kPairs);
    for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += kConsumerThreads * 16) {
      copy_small(to + at, static_cast<const std::byte*>(from) + at);
    }
  }
#endif
}

template <class Scales, WidthSet kWidths, int Tokens, GemvVariant kVariant, bool kPairs>
__global__ void __launch_bounds__(kThreads, 1)
    gemv_i8_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Tokens>*>(memory);
  const PackedGemmArgs& args = launch.args;
  pdl_trigger();
  const int begin = cta_range_begin(launch.plan.begins, blockIdx.x);
  const int end = cta_range_begin(launch.plan.begins, blockIdx.x + 1);
  std::byte* tables = memory + launch.tables_at;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  GemvPipeline pipeline(launch.pipeline, memory + launch.pipeline_offset, shared.barriers);
  if (threadIdx.x >= kConsumerThreads) {
    pipeline.produce(launch.plan, begin, end, launch.prefetch);
    return;
  }
#else
  if (threadIdx.x >= kConsumerThreads) return;
  GemvPipeline pipeline(args, CopyBlockWalk(args, begin, end, kGemvNTiles));
#endif
  GemvInput input;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  input.limbs = opaque_smem_ptr(memory + sizeof(shared));
#else
  input.limbs = memory + sizeof(shared);
#endif
  input.bytes = args.input_layout_bytes;
  input.token_stride = launch.token_stride;
  input.limb_scale_at = args.limb_scale_at;
  input.padded = launch.padded;
  input.first_matrix = launch.plan.matrix_of(begin);
  input.end_matrix = launch.one_input_layout ? input.first_matrix + 1
                     : args.gated            ? 2
                                             : launch.plan.matrix_of(end - 1) + 1;
  if constexpr (kVariant == GemvVariant::kAny) input.place_lowest_first(args);
  if (kPairs && threadIdx.x < std::size(shared.zeros)) shared.zeros[threadIdx.x] = {};
  static_assert(sizeof(ThreadSquares[Tokens]) <= sizeof(shared.warp_sums));
  using Consumer = GemvConsumer<Scales, kWidths, Tokens, kVariant, kPairs>;
  typename Consumer::Lane lane;
  make_gemv_input<Tokens, kVariant>(args, input, pipeline, shared.factors,
                                    reinterpret_cast<ThreadSquares(&)[Tokens]>(shared.warp_sums),
                                    [&] {
                                      copy_tables<kPairs>(args, tables);
                                      if constexpr (kPairs) lane = PairLane::find();
                                    });
  Consumer(shared, pipeline, lane).run(args, input, tables);
}

using GemvKernel = void (*)(Launch);

template <class Scales, int Tokens, GemvVariant kVariant, bool kPairs = false>
GemvKernel kernel_of_scales(WidthSet widths) {
  constexpr bool kGptq = !std::is_same_v<Scales, ExlScales>;
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> GemvKernel {
    return gemv_i8_kernel<Scales, kWidths, Tokens, kVariant, kPairs>;
  });
}

template <int Tokens, GemvVariant kVariant>
GemvKernel kernel_of_variant(const PackedGemmArgs& args) {
  const WidthSet widths = widths_of(args);
  if (args.matrices[0].view.kind == ScaleKind::kExl2) {
    return kernel_of_scales<ExlScales, Tokens, kVariant>(widths);
  }
  return has_no_zeros(args) ? kernel_of_scales<PlainGptqScales, Tokens, kVariant>(widths)
                            : kernel_of_scales<GptqScales, Tokens, kVariant>(widths);
}

// `deferred_gate_mul`: some GEMV of this card defers its gate multiplication
// (has_deferred_gate_mul).
GemvKernel kernel_of(const PackedGemmArgs& args, bool deferred_gate_mul) {
  if (args.tokens > 1) return kernel_of_variant<kGemvTokens, GemvVariant::kAny>(args);
  if (!is_plain_gemv(args)) return kernel_of_variant<1, GemvVariant::kAny>(args);
  const WidthSet widths = widths_of(args);
  if (deferred_gate_mul && args.matrices[0].view.kind == ScaleKind::kExl2) {
    return args.pairs ? kernel_of_scales<ExlScales, 1, GemvVariant::kPlainDeferredMul, true>(widths)
                      : kernel_of_scales<ExlScales, 1, GemvVariant::kPlainDeferredMul>(widths);
  }
  return args.pairs ? kernel_of_scales<ExlScales, 1, GemvVariant::kPlain, true>(widths)
                    : kernel_of_variant<1, GemvVariant::kPlain>(args);
}

}  // namespace

void gemv_i8(ExecContext& ctx, const PackedGemmArgs& args, const GemvPlan& plan,
             std::span<const std::span<const CopyBlock>> copy_blocks, const Prefetches& prefetch) {
  check_packed_gemm(args);
  const GemvSmemLayout& layout = plan.layout;
  Launch launch_args;
  launch_args.pipeline = layout.pipeline;
  launch_args.tables_at = layout.tables_at;
  launch_args.pipeline_offset = layout.pipeline_offset;
  launch_args.token_stride = layout.token_stride;
  launch_args.args = args;
  launch_args.prefetch = prefetch;
  launch_args.args.input_layout_bytes = layout.input_layout_bytes;
  launch_args.args.limb_scale_at = layout.limb_scale_at;
  launch_args.one_input_layout = has_one_input_layout(args);
  launch_args.padded = is_padded(args);
  int tables = 0;
  for (int i = 0; i < args.count; ++i) {
    PackedGemmMatrix& m = launch_args.args.matrices[i];
    m.k_blocks_at = tables;
    tables += table_bytes(m.view, args.pairs);
  }
  launch_args.plan = plan_gemv_i8(launch_args.args, plan.ranges, layout, copy_blocks);
  GemmState& state = gemm_state(ctx);
  if (plan.ranges.ctas > CtaRangeBegins::kMost) {
    launch_args.plan.begins.far = state.tables.begins(plan.ranges);
  }
  PartitionCache& plans = state.partitions;
  if (args.gate_alone || args.x_partial_multiplies) plans.set_deferred_gate_mul();
  const GemvKernel kernel = kernel_of(launch_args.args, plans.has_deferred_gate_mul());
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(plan.ranges.ctas)), kThreads,
                  static_cast<std::size_t>(layout.bytes)),
         kernel, launch_args);
}

}  // namespace bl::cuda
