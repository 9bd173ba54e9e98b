// The op `sample` (ADR 24): the algorithm of sample_steps.h and sample_draw.h as kernels. A CTA has
// kSampleThreads threads; the grid is (parts of a row, rows).

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/ops/row_ops.h"
#include "backend/cuda/ops/sample_draw.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = kSampleThreads / 32;

// The Cta of sample_steps.h on a card.
struct DeviceCta {
  template <class F>
  __device__ __forceinline__ void phase(F&& f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class Op>
  __device__ __forceinline__ void fold(std::uint64_t* values, Op op) {
    __shared__ std::uint64_t of_warps[kWarps];
    unsigned long long value = values[threadIdx.x];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
    }
    if (lane_index() == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int w = 1; w < kWarps; ++w) value = op(value, of_warps[w]);
      values[0] = value;
    }
    __syncthreads();
  }
  __device__ __forceinline__ void scan(std::uint64_t* values) {
    __shared__ std::uint64_t of_warps[kWarps];
    const unsigned long long own = values[threadIdx.x];
    unsigned long long sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const unsigned long long other = __shfl_up_sync(kAllLanes, sum, distance);
      sum += lane_index() >= distance ? other : 0;
    }
    if (lane_index() == 31) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps - 1; ++w) {
      sum += w < static_cast<int>(threadIdx.x) / 32 ? of_warps[w] : 0;
    }
    values[threadIdx.x] = sum - own;
    if (threadIdx.x == kSampleThreads - 1) values[kSampleThreads] = sum;
    __syncthreads();
  }
  // `to` may be in shared or in device memory.
  __device__ __forceinline__ std::uint32_t add(std::uint32_t* to, std::uint32_t value) {
    return atomicAdd(to, value);
  }
  __device__ __forceinline__ std::uint64_t add(std::uint64_t* to, std::uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(to), value);
  }
  // Reads what other CTAs have written, past this multiprocessor's L1.
  template <class T>
  __device__ __forceinline__ T fresh(const T* from) {
    if constexpr (sizeof(T) == 8) {
      return static_cast<T>(__ldcg(reinterpret_cast<const unsigned long long*>(from)));
    } else {
      return static_cast<T>(__ldcg(reinterpret_cast<const unsigned int*>(from)));
    }
  }
  // Returns whether this CTA is the row's last one to come here; it then sees the others' writes.
  __device__ __forceinline__ bool is_last(std::uint32_t* counter, int ctas, bool* shared) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *shared = atomicAdd(counter, 1u) + 1 == static_cast<unsigned>(ctas);
    __syncthreads();
    if (*shared) __threadfence();
    return *shared;
  }
};

// The data of all rows, as arrays.
struct SampleParameters {
  Rows<float> logits;
  const SampleRule* rules;
  const LogitEdit* edits;
  float* unedited;        // [edits]
  std::uint64_t* tops;    // [rows, parts]
  std::uint64_t* masses;  // [rows, parts]
  std::uint32_t* counts;  // [rows, kSampleBuckets]
  std::int32_t* lists;    // [rows, kSampleListed]
  SampleState* states;    // [rows]
  std::int32_t* ids;
  float* log_probabilities;
  int vocab;
  int part_size;
  int parts;
  bool fours;
};

// The part of a row that this CTA handles, in a grid (parts, rows).
__device__ __forceinline__ SamplePart part_of(const SampleParameters& p) {
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  return {.rule = p.rules[row],
          .logits = p.logits[row],
          .vocab = p.vocab,
          .part_size = p.part_size,
          .parts = p.parts,
          .part = static_cast<int>(blockIdx.x),
          .fours = p.fours,
          .tops = p.tops + row * p.parts,
          .masses = p.masses + row * p.parts,
          .counts = p.counts + row * kSampleBuckets,
          .list = p.lists + row * kSampleListed,
          .state = p.states + row,
          .edits = p.edits,
          .unedited = p.unedited,
          .id = p.ids + row,
          .log_probability = p.log_probabilities + row};
}

// Grid (1, rows). Applies penalties and biases to the logits, and keeps the originals in
// `unedited`.
__global__ void __launch_bounds__(kSampleThreads) edit_kernel(SampleParameters p) {
  pdl_trigger();
  pdl_wait();
  const SampleRule& rule = p.rules[blockIdx.y];
  float* logits = p.logits[blockIdx.y];
  for (int i = static_cast<int>(threadIdx.x); i < rule.edits; i += kSampleThreads) {
    const LogitEdit edit = p.edits[rule.first_edit + i];
    const float logit = logits[edit.id];
    p.unedited[rule.first_edit + i] = logit;
    logits[edit.id] = edited_logit(logit, edit, rule);
  }
}

__global__ void __launch_bounds__(kSampleThreads) find_top_kernel(SampleParameters p) {
  __shared__ TopShared smem;
  pdl_trigger();
  pdl_wait();
  DeviceCta cta;
  find_top(cta, part_of(p), smem);
}

__global__ void __launch_bounds__(kSampleThreads) weigh_row_kernel(SampleParameters p) {
  __shared__ WeighShared smem;
  pdl_trigger();
  pdl_wait();
  DeviceCta cta;
  weigh_row(cta, part_of(p), smem);
}

__global__ void __launch_bounds__(kSampleThreads) draw_row_kernel(SampleParameters p) {
  __shared__ DrawShared smem;
  pdl_trigger();
  pdl_wait();
  DeviceCta cta;
  draw_row(cta, part_of(p), smem);
}

}  // namespace

void sample(ExecContext& ctx, const SampleArgs& args) {
  const std::int64_t rows = args.logits.rows();
  if (rows == 0) return;
  BL_CHECK(rows <= SampleLimits::kRows && args.logits.columns() <= SampleLimits::kVocab);
  BL_CHECK(args.max_edits <= SampleLimits::kEdits);
  const auto vocab = static_cast<int>(args.logits.columns());
  // Four CTAs a multiprocessor, but no more than give each thread two vector loads.
  const int wanted = static_cast<int>(
      ceil_div<std::int64_t>(std::int64_t{4} * cuda_device(ctx).facts().multiprocessors, rows));
  const int useful = ceil_div(vocab, kSampleThreads * 8);
  const int most = std::clamp(wanted, 1, std::min(kSampleParts, useful));
  const int part_size = ceil_div(ceil_div(vocab, most), 4) * 4;
  const int parts = ceil_div(vocab, part_size);
  const ArenaScope scope(*ctx.scratch);
  const auto take = [&](DType dtype, std::int64_t columns) {
    return ctx.scratch->take(dtype, {rows, columns});
  };
  const SampleParameters p{
      .logits = rows_of<float>(args.logits),
      .rules = args.rules,
      .edits = args.edits,
      .unedited = args.max_edits > 0 ? ctx.scratch->take(DType::kF32, {args.max_edits}).as<float>()
                                     : nullptr,
      .tops = take(DType::kI64, parts).as<std::uint64_t>(),
      .masses = take(DType::kI64, parts).as<std::uint64_t>(),
      .counts = take(DType::kI32, kSampleBuckets).as<std::uint32_t>(),
      .lists = take(DType::kI32, kSampleListed).as<std::int32_t>(),
      .states = take(DType::kI64, sizeof(SampleState) / 8).as<SampleState>(),
      .ids = args.ids,
      .log_probabilities = args.log_probabilities,
      .vocab = vocab,
      .part_size = part_size,
      .parts = parts,
      .fours = allows_vector_access(args.logits, 4)};
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(rows));
  if (args.max_edits > 0) {
    launch(shape_of(ctx, dim3(1, grid.y), dim3(kSampleThreads)), edit_kernel, p);
  }
  launch(shape_of(ctx, grid, dim3(kSampleThreads)), find_top_kernel, p);
  launch(shape_of(ctx, grid, dim3(kSampleThreads)), weigh_row_kernel, p);
  launch(shape_of(ctx, grid, dim3(kSampleThreads)), draw_row_kernel, p);
}

}  // namespace bl::cuda
