// Packs the inputs of the experts' GEMMs, in the input layout of each expert's matrices.

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"
#include "backend/cuda/moe/expert_kernels.h"

namespace bl::cuda {
namespace {

constexpr int kPackThreads = 256;
constexpr int kKStepsPerWarp = 4;
constexpr int kKStepsPerCta = kPackThreads / 32 * kKStepsPerWarp;

// Stores `value`, already divided by the scale, as element 32 · k_step + lane of a packed row. All
// lanes of the warp take part.
__device__ __forceinline__ void store_k_step(std::uint32_t* row, int k_step, float value,
                                             int lane) {
  const float times = lane < 16 ? 1.0f : 16.0f;
  reinterpret_cast<__half*>(row)[std::int64_t{k_step} * kKStepSize + fragment_offset(lane)] =
      __float2half_rn(value / times);
}

// Loads the features at this lane's k in four k_steps from `first` on.
__device__ __forceinline__ void load_features(const ExpertMatrix& matrix, int first, int lane,
                                              int (&features)[kKStepsPerWarp]) {
#pragma unroll
  for (int u = 0; u < kKStepsPerWarp; ++u) {
    features[u] =
        first + u < matrix.view.k_steps ? matrix.feature_of_k[(first + u) * kKStepSize + lane] : -1;
  }
}

// Returns the matrix of a choice's expert, or null if it has no codes to pack for.
__device__ __forceinline__ const ExpertMatrix* matrix_of(const ExpertRows& rows, int choice,
                                                         const ExpertMatrix* table) {
  if (row_of_choice(rows, choice) < 0) return nullptr;
  const ExpertMatrix* matrix = table + rows.experts[choice];
  return matrix->view.codes != nullptr ? matrix : nullptr;
}

// Fragments are stored row by row here.
__device__ __forceinline__ std::uint32_t* row_of(std::uint32_t* fragments, int k_steps,
                                                 std::int64_t row) {
  return fragments + row * k_steps * (kKStepSize / 2);
}

// Returns the largest magnitude of a row.
template <class Value>
__device__ __forceinline__ float largest_of(const Value& value, int width, float* warp_largest) {
  float largest = 0.0f;
#pragma unroll 8
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kPackThreads) {
    largest = fmaxf(largest, fabsf(value(c)));
  }
  return cta_max(largest, warp_largest);
}

// Packs one CTA's k_steps of a row whose feature c is value(c), and whose largest magnitude is
// known. Returns what they were divided by.
template <class Value>
__device__ __forceinline__ float pack_k_steps(const ExpertMatrix& matrix, float largest,
                                              std::uint32_t* row, const Value& value) {
  const int warp = warp_index();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(blockIdx.y) * kKStepsPerCta + warp * kKStepsPerWarp;
  int features[kKStepsPerWarp];
  load_features(matrix, first, lane, features);
  const float power = power_of_two_for(largest, kInputExponent);
  const float divide = 1.0f / power;
#pragma unroll
  for (int u = 0; u < kKStepsPerWarp; ++u) {
    if (first + u >= matrix.view.k_steps) break;
    store_k_step(row, first + u, features[u] < 0 ? 0.0f : value(features[u]) * divide, lane);
  }
  return power;
}

// These two kernels call pdl_wait() before pdl_trigger(), unlike most others: the GEMM behind them
// reads the sorted choices and its weights before it waits itself, so the sorting must be complete
// by then.

// grid (choices, ranges of k_steps, input layouts)
__global__ void __launch_bounds__(kPackThreads)
    pack_inputs_kernel(const __grid_constant__ ExpertInputArgs p) {
  __shared__ float warp_largest[kPackThreads / 32];
  pdl_wait();
  pdl_trigger();
  const int choice = static_cast<int>(blockIdx.x);
  const ExpertFragments& input_layout = p.input_layouts[blockIdx.z];
  const ExpertMatrix* matrix = matrix_of(p.rows, choice, input_layout.table);
  if (matrix == nullptr) return;
  const int token = choice / p.rows.k;
  const float* row_x = p.x + token * p.x_stride;
  const auto x = [row_x](int c) { return row_x[c]; };
  const int row = row_of_choice(p.rows, choice);
  const float power = pack_k_steps(*matrix, largest_of(x, p.in, warp_largest),
                                   row_of(input_layout.fragments, p.k_steps, row), x);
  // Both input layouts hold the same row, so both have the same scale.
  if (threadIdx.x == 0 && blockIdx.y == 0) {
    const float* weights = p.rows.weights + token * p.rows.weight_stride;
    p.row_scales[row] = p.weigh ? power * weights[choice % p.rows.k] : power;
  }
}

// act(gate) · up of one row.
struct Hidden {
  const float* first;
  int width;
  bool gated;
  ActivationParameters activation;
  __device__ __forceinline__ float operator()(int c) const {
    return activated(activation, first[c], gated ? first[width + c] : 0.0f, gated);
  }
};

__device__ __forceinline__ Hidden hidden_of(const ExpertHiddenArgs& p, int row) {
  return {p.first + row * p.first_stride, p.width, p.gated, p.activation};
}

// grid (choices, ranges of k_steps)
__global__ void __launch_bounds__(kPackThreads)
    pack_hidden_kernel(const __grid_constant__ ExpertHiddenArgs p) {
  __shared__ float warp_largest[kPackThreads / 32];
  pdl_wait();
  pdl_trigger();
  const int choice = static_cast<int>(blockIdx.x);
  const ExpertMatrix* matrix = matrix_of(p.rows, choice, p.down);
  if (matrix == nullptr) return;
  const int row = row_of_choice(p.rows, choice);
  const Hidden hidden = hidden_of(p, row);
  const float power = pack_k_steps(*matrix, largest_of(hidden, p.width, warp_largest),
                                   row_of(p.to.fragments, p.k_steps, row), hidden);
  if (threadIdx.x == 0 && blockIdx.y == 0) p.row_scales[row] = power;
}

// grid (choices, ranges of columns)
__global__ void __launch_bounds__(kPackThreads)
    activate_rows_kernel(const __grid_constant__ ExpertHiddenArgs p) {
  pdl_trigger();
  pdl_wait();
  const int column = static_cast<int>(blockIdx.y * kPackThreads + threadIdx.x);
  const int choice = static_cast<int>(blockIdx.x);
  const int row = row_of_choice(p.rows, choice);
  if (row < 0 || column >= p.width) return;
  if (p.down[p.rows.experts[choice]].rows == nullptr) return;
  p.hidden[row * p.hidden_stride + column] = hidden_of(p, row)(column);
}

unsigned ctas_for(int count, int of) { return static_cast<unsigned>((count + of - 1) / of); }

}  // namespace

void pack_expert_inputs(ExecContext& ctx, const ExpertInputArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.choices), ctas_for(args.k_steps, kKStepsPerCta),
                  static_cast<unsigned>(args.input_layout_count));
  launch(shape_of(ctx, grid, kPackThreads), pack_inputs_kernel, args);
}

void pack_expert_hidden(ExecContext& ctx, const ExpertHiddenArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.choices), ctas_for(args.k_steps, kKStepsPerCta));
  launch(shape_of(ctx, grid, kPackThreads), pack_hidden_kernel, args);
}

void activate_expert_rows(ExecContext& ctx, const ExpertHiddenArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.choices), ctas_for(args.width, kPackThreads));
  launch(shape_of(ctx, grid, kPackThreads), activate_rows_kernel, args);
}

}  // namespace bl::cuda
