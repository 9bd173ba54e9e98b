#include "backend/cuda/fitting/slot_kernels.h"

#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/fitting/group_grids.cuh"

namespace bl::cuda {
namespace {

__device__ __forceinline__ std::int64_t own_column() {
  return std::int64_t{blockIdx.x} * kGridColumns + threadIdx.x;
}

// A CTA is a warp, and a lane has a column.
static_assert(kGridColumns == 32);

// What a lane begins the slots of its run with and, where it is done with them, has left for the
// later ones.
using RunColumns = float[kRunSlots][kGridColumns];

// Reads all that the lane begins with at once, since no slot could hide that time.
__device__ __forceinline__ void read_run(RunColumns& columns, const SlotMatrices& m,
                                         const SlotRun& run, std::int64_t column) {
  const float* work = m.work + run.first * m.out + column;
#pragma unroll 8
  for (int k = 0; k < run.slots; ++k) columns[k][threadIdx.x] = work[k * m.out];
}

// Factors between the slots of a run, row by row. The next row is on its way while the lanes work
// with the one in shared memory.
class FactorRows {
 public:
  __device__ FactorRows(const SlotFactors& factors, const SlotRun& run)
      : next_(factors.data + run.first * factors.stride + run.first),
        stride_(factors.stride),
        slots_(run.slots),
        left_(run.slots) {
    read();
  }
  // Puts the next row into `row`, of kRunSlots elements in shared memory.
  __device__ void take(float* row) {
    __syncwarp();  // All lanes are done with the row before.
#pragma unroll
    for (int i = 0; i < kParts; ++i) row[i * 32 + threadIdx.x] = ahead_[i];
    __syncwarp();
    read();
  }

 private:
  static constexpr int kParts = kRunSlots / 32;
  __device__ void read() {
    if (left_-- <= 0) return;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int slot = i * 32 + static_cast<int>(threadIdx.x);
      ahead_[i] = slot < slots_ ? next_[slot] : 0.0f;
    }
    next_ += stride_;
  }

  const float* next_;
  std::int64_t stride_;
  int slots_;
  int left_;
  float ahead_[kParts] = {};
};

// value + factor · Σ row[j] · column[j] for j < count, in the order of j.
__device__ __forceinline__ float add_earlier(float value, float factor, const float* row,
                                             const RunColumns& columns, int count) {
#pragma unroll 8
  for (int j = 0; j < count; ++j) value += factor * row[j] * columns[j][threadIdx.x];
  return value;
}

template <class Group>
__global__ void __launch_bounds__(kGridColumns)
    round_slots_kernel(SlotMatrices m, SlotFactors u, SlotRun run, Group group, float* errors) {
  __shared__ RunColumns earlier;  // each slot's wanted value, then its error
  __shared__ float row[kRunSlots];
  pdl_trigger();
  pdl_wait();
  const std::int64_t column = own_column();
  const ColumnGrid grid = group.grid(column);
  read_run(earlier, m, run, column);
  FactorRows rows(u, run);
  for (int k = 0; k < run.slots; ++k) {
    const std::int64_t at = (run.first + k) * m.out + column;
    rows.take(row);
    const float wanted = add_earlier(earlier[k][threadIdx.x], -1.0f, row, earlier, k);
    const float code = grid.clamped(grid.scale > 0.0f ? wanted / grid.scale : 0.0f);
    const float value = grid.value(code);
    const float error = (wanted - value) * (1.0f / row[k]);
    m.values[at] = value;
    m.codes[at] = static_cast<std::uint8_t>(static_cast<int>(code + grid.zero));
    earlier[k][threadIdx.x] = error;  // which no other lane reads
    errors[k * m.out + column] = error;
  }
}

template <class Group>
struct ReadSteps {
  const std::uint8_t* codes;
  Group group;
  std::int64_t out;
  float* steps;
  __device__ void operator()(std::int64_t r, std::int64_t c) const {
    steps[r * out + c] = static_cast<float>(codes[r * out + c]) - group.grid(c).zero;
  }
};

// A warp a row.
constexpr int kSumWarps = 8;
__global__ void __launch_bounds__(32 * kSumWarps)
    sum_group_rows_kernel(SlotFactors h, std::int64_t first, std::int64_t slots, float* sums) {
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = std::int64_t{blockIdx.x} * kSumWarps + warp_index();
  if (row >= slots) return;
  float sum = 0.0f;
  for (std::int64_t s = lane_index(); s < slots; s += 32) {
    sum += h.data[(first + row) * h.stride + first + s];
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) sums[first + row] = sum;
}

// `m` begins at the group's first slot here, and so do the row sums.
template <class Group>
__global__ void __launch_bounds__(kGridColumns)
    refit_group_kernel(SlotMatrices m, std::int64_t slots, Group group, RefitInputs inputs,
                       float* changes) {
  pdl_trigger();
  pdl_wait();
  const std::int64_t column = own_column();
  RefitSums sums;
  for (std::int64_t r = 0; r < slots; ++r) {
    const std::int64_t at = r * m.out + column;
    const float step = inputs.steps[at], gradient = m.work[at];
    sums.by_scale += step * gradient;
    sums.by_shift += gradient;
    sums.scale_scale += step * inputs.products[at];
    sums.scale_shift += step * inputs.row_sums[r];
    sums.shift_shift += inputs.row_sums[r];
  }
  group.refit(column, sums);
  const ColumnGrid grid = group.grid(column);
  for (std::int64_t r = 0; r < slots; ++r) {
    const std::int64_t at = r * m.out + column;
    const float value = grid.value(static_cast<float>(m.codes[at]) - grid.zero);
    changes[at] = value - m.values[at];
    m.values[at] = value;
  }
}

template <class Group>
__global__ void __launch_bounds__(kGridColumns)
    change_codes_kernel(SlotMatrices m, SlotFactors h, SlotRun run, Group group, float* changes,
                        float* total) {
  __shared__ RunColumns earlier;  // each slot's gradient, then the change of its value
  __shared__ float row[kRunSlots];
  pdl_trigger();
  pdl_wait();
  const std::int64_t column = own_column();
  const ColumnGrid grid = group.grid(column);
  read_run(earlier, m, run, column);
  FactorRows rows(h, run);
  for (int k = 0; k < run.slots; ++k) {
    const std::int64_t at = (run.first + k) * m.out + column;
    rows.take(row);
    const float gradient = add_earlier(earlier[k][threadIdx.x], 1.0f, row, earlier, k);
    const float before = m.values[at];
    float change = 0.0f;
    if (grid.scale > 0.0f) {
      const float best = before - gradient * (1.0f / row[k]);
      const float code = grid.clamped(best / grid.scale);
      const auto stored = static_cast<std::uint8_t>(static_cast<int>(code + grid.zero));
      if (stored != m.codes[at]) {
        const float value = grid.value(code);
        change = value - before;
        m.values[at] = value;
        m.codes[at] = stored;
      }
    }
    earlier[k][threadIdx.x] = change;
    changes[k * m.out + column] = change;
    total[k * m.out + column] += change;
  }
}

unsigned ctas_of(const SlotMatrices& matrices) {
  return static_cast<unsigned>(matrices.out / kGridColumns);
}

}  // namespace

void round_slots(FittingDevice& device, const GroupWork& work, const SlotRun& run, float* errors) {
  with_group(work.grids, [&](const auto& group) {
    using Group = std::decay_t<decltype(group)>;
    launch(shape_of(device.context(), ctas_of(work.matrices), kGridColumns),
           round_slots_kernel<Group>, work.matrices, work.factors, run, group, errors);
  });
}

void read_steps(FittingDevice& device, const GroupWork& work, const GroupRuns& group,
                float* steps) {
  const std::int64_t out = work.matrices.out;
  with_group(work.grids, [&](const auto& own) {
    using Group = std::decay_t<decltype(own)>;
    for_each_element<1>(device.context(), group.slots, out,
                        ReadSteps<Group>{work.matrices.codes + group.first * out, own, out, steps});
  });
}

void sum_group_rows(FittingDevice& device, const SlotFactors& h, const GroupRuns& group,
                    float* sums) {
  const auto ctas = static_cast<unsigned>(ceil_div<std::int64_t>(group.slots, kSumWarps));
  launch(shape_of(device.context(), ctas, 32 * kSumWarps), sum_group_rows_kernel, h, group.first,
         group.slots, sums);
}

void refit_group(FittingDevice& device, const GroupWork& work, const GroupRuns& group,
                 const RefitInputs& inputs, float* changes) {
  SlotMatrices own = work.matrices;
  own.work += group.first * own.out;
  own.values += group.first * own.out;
  own.codes += group.first * own.out;
  RefitInputs of_group = inputs;
  of_group.row_sums += group.first;
  with_group(work.grids, [&](const auto& format) {
    using Group = std::decay_t<decltype(format)>;
    launch(shape_of(device.context(), ctas_of(own), kGridColumns), refit_group_kernel<Group>, own,
           group.slots, format, of_group, changes);
  });
}

void change_codes(FittingDevice& device, const GroupWork& work, const SlotRun& run, float* changes,
                  float* total) {
  with_group(work.grids, [&](const auto& group) {
    using Group = std::decay_t<decltype(group)>;
    launch(shape_of(device.context(), ctas_of(work.matrices), kGridColumns),
           change_codes_kernel<Group>, work.matrices, work.factors, run, group, changes, total);
  });
}

}  // namespace bl::cuda
