// Grouped GEMM of rows sorted by expert with plain matrices: any card, two columns a warp, F32
// sums. Bound by reading the weights; not measured.

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_kernels.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kColumns = 2;  // of a warp
constexpr int kCtaColumns = kWarps * kColumns;
constexpr int kRows = 8;  // multiplied at a time

// The rows that are multiplied at a time, and their sums.
template <int Rows>
struct Group {
  const float* x[Rows];
  float sums[kColumns][Rows];
};

// Adds the products of 16 bytes of weights at a time; all rows are 16-byte aligned. Products are
// added one by one, so that a row's sum does not depend on how many rows are multiplied with it.
template <class T, int Rows>
__device__ __forceinline__ void multiply_words(const T* const (&w)[kColumns], int in, int lane,
                                               Group<Rows>& group) {
  constexpr int kCount = 16 / sizeof(T);
  constexpr int kAhead = Rows == 1 ? 4 : Rows < kRows ? 2 : 1;  // as many as registers hold
#pragma unroll kAhead
  for (int i = lane * kCount; i < in; i += 32 * kCount) {
    uint4 words[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) words[c] = __ldg(reinterpret_cast<const uint4*>(w[c] + i));
#pragma unroll
    for (int v = 0; v < kCount; v += 4) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        const float4 x = *reinterpret_cast<const float4*>(group.x[r] + i + v);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const T* values = reinterpret_cast<const T*>(&words[c]) + v;
          float& sum = group.sums[c][r];
          sum = fmaf(float_of(values[0]), x.x, sum);
          sum = fmaf(float_of(values[1]), x.y, sum);
          sum = fmaf(float_of(values[2]), x.z, sum);
          sum = fmaf(float_of(values[3]), x.w, sum);
        }
      }
    }
  }
}

template <class T, int Rows>
__device__ __forceinline__ void multiply_singly(const T* const (&w)[kColumns], int in, int lane,
                                                Group<Rows>& group) {
  for (int i = lane; i < in; i += 32) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float weight = float_of(w[c][i]);
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        group.sums[c][r] = fmaf(weight, group.x[r][i], group.sums[c][r]);
      }
    }
  }
}

// The columns of one matrix that a warp multiplies.
struct WarpColumns {
  const ExpertMatrix& matrix;
  const ExpertGemmArgs::Matrix& to;
  int first;
};

// Rows [first, first + live) of one block, live ≤ Rows.
template <class T, int Rows>
__device__ void multiply_rows(const ExpertGemmArgs& p, const WarpColumns& columns, int first,
                              int live) {
  const int lane = lane_index();
  Group<Rows> group;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int row = first + min(r, live - 1);
    const int from = p.x_of_tokens ? p.rows.choice_of_row[row] / p.rows.k : row;
    group.x[r] = p.x + from * p.x_stride;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) group.sums[c][r] = 0.0f;
  }
  const T* weights[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const std::int64_t column = min(columns.first + c, columns.to.out - 1);
    weights[c] = static_cast<const T*>(columns.matrix.rows) + column * p.in;
  }
  const bool vectors =
      p.in % (16 / static_cast<int>(sizeof(T))) == 0 && is_aligned(p.x, 16) && p.x_stride % 4 == 0;
  if (vectors) {
    multiply_words<T>(weights, p.in, lane, group);
  } else {
    multiply_singly<T>(weights, p.in, lane, group);
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float value = warp_sum(group.sums[c][r]);
      const int column = columns.first + c;
      if (lane != 0 || r >= live || column >= columns.to.out) continue;
      const int row = first + r;
      if (p.weigh) {
        const int choice = p.rows.choice_of_row[row];
        value *= p.rows.weights[choice / p.rows.k * p.rows.weight_stride + choice % p.rows.k];
      }
      if (columns.matrix.bias != nullptr) value += columns.matrix.bias[column];
      p.out[row * p.out_stride + columns.to.first_column + column] = value;
    }
  }
}

template <class T>
__device__ void multiply_block(const ExpertGemmArgs& p, const WarpColumns& columns, int block) {
  const int live = p.rows.rows_of_block[block];
  for (int done = 0; done < live; done += kRows) {
    const int first = block * p.rows.block_rows + done;
    const int rows = min(live - done, kRows);
    if (rows == 1) {
      multiply_rows<T, 1>(p, columns, first, rows);
    } else if (rows <= 3) {
      multiply_rows<T, 3>(p, columns, first, rows);
    } else {
      multiply_rows<T, kRows>(p, columns, first, rows);
    }
  }
}

// grid (blocks, groups of columns of the first matrix and the second)
__global__ void __launch_bounds__(kThreads, 2)
    expert_plain_kernel(const __grid_constant__ ExpertGemmArgs p) {
  pdl_trigger();
  pdl_wait();
  const int block = static_cast<int>(blockIdx.x);
  const int expert = p.rows.expert_of_block[block];
  if (expert < 0) return;
  const int first_groups = (p.matrices[0].out + kCtaColumns - 1) / kCtaColumns;
  const int which = static_cast<int>(blockIdx.y) < first_groups ? 0 : 1;
  const int group = static_cast<int>(blockIdx.y) - which * first_groups;
  const ExpertGemmArgs::Matrix& to = p.matrices[which];
  const ExpertMatrix& matrix = to.table[expert];
  if (matrix.rows == nullptr) return;
  const int warp = warp_index();
  const WarpColumns columns{matrix, to, group * kCtaColumns + warp * kColumns};
  if (columns.first >= to.out) return;
  switch (matrix.type) {
    case DType::kF16:
      multiply_block<Half>(p, columns, block);
      break;
    case DType::kBF16:
      multiply_block<BFloat16>(p, columns, block);
      break;
    default:
      multiply_block<float>(p, columns, block);
  }
}

}  // namespace

void expert_plain_gemm(ExecContext& ctx, const ExpertGemmArgs& args) {
  int groups = 0;
  for (int i = 0; i < args.count; ++i) {
    groups += (args.matrices[i].out + kCtaColumns - 1) / kCtaColumns;
  }
  const dim3 grid(static_cast<unsigned>(args.rows.blocks), static_cast<unsigned>(groups));
  launch(shape_of(ctx, grid, kThreads), expert_plain_kernel, args);
}

}  // namespace bl::cuda
