// One launch measures the curves of all columns, a warp a point and 32 columns; a second one adds
// up the errors of each maximum that is tried, a CTA a maximum; a third one chooses codes. GPTQ's
// columns do not depend on each other, so that one launch does.

#include "backend/cuda/fitting/grid_search.h"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/group_grids.cuh"
#include "backend/cuda/fitting/row_sums.cuh"

namespace bl::cuda {
namespace {

struct Curves {
  float* errors;
  float* log_base;
  float* preferred;
  double* of_maximum;
  std::uint16_t* maxima;
};

Curves curves_of(const SearchScratch& scratch) {
  return {scratch.errors.get(), scratch.log_base.get(), scratch.preferred.get(),
          scratch.of_maximum.get(), scratch.maxima.get()};
}

__device__ __forceinline__ ColumnGrid centered_grid(float scale, int bits) {
  return {scale, static_cast<float>(exl2_center(bits)), static_cast<float>((1 << bits) - 1)};
}

__device__ __forceinline__ std::int64_t own_column() {
  return std::int64_t{blockIdx.x} * kGridColumns + threadIdx.x;
}

__global__ void __launch_bounds__(kGridColumns* kCurvePoints)
    measure_curves_kernel(GroupWeights group, int bits, Curves curves) {
  __shared__ float errors[kCurvePoints][kGridColumns];
  pdl_trigger();
  pdl_wait();
  const std::int64_t column = own_column();
  const int point = static_cast<int>(threadIdx.y);
  const float* weights = group.weights + column;
  float base = 0.0f;
  for (std::int64_t r = 0; r < group.slots; ++r) base = fmaxf(base, fabsf(weights[r * group.out]));
  base *= kCurveFirst / (static_cast<float>(exl2_center(bits)) - 0.5f);
  const float error = grid_error(weights, group.out, group.importance, group.slots,
                                 centered_grid(base * curve_ratio(point), bits));
  curves.errors[point * group.out + column] = error;
  errors[point][threadIdx.x] = error;
  __syncthreads();
  if (point != 0) return;
  int best = 0;
  for (int other = 1; other < kCurvePoints; ++other) {
    if (errors[other][threadIdx.x] < errors[best][threadIdx.x]) best = other;
  }
  curves.log_base[column] = log2f(base);
  curves.preferred[column] = base * curve_ratio(best);
}

__global__ void __launch_bounds__(kRowThreads)
    try_maxima_kernel(std::int64_t columns, Curves curves) {
  __shared__ float maxima[kRowThreads / 32];
  __shared__ double parts[kRowThreads / 32];
  __shared__ float code_logs[16];
  pdl_trigger();
  pdl_wait();
  const int attempt = static_cast<int>(blockIdx.x);
  if (threadIdx.x < 16) code_logs[threadIdx.x] = code_log(static_cast<int>(threadIdx.x));
  float largest = 0.0f;
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    largest = fmaxf(largest, curves.preferred[c]);
  }
  largest = cta_max(largest, maxima);  // a barrier, behind which code_logs are there
  const std::uint16_t bits = largest > 0.0f ? tried_maximum(largest, attempt) : 0;
  const float value = 256.0f * exl2_group_scale(bits);
  const TriedMaximum maximum{value, log2f(value), code_logs};
  double sum = 0.0;
  for (std::int64_t c = threadIdx.x; value > 0.0f && c < columns; c += kRowThreads) {
    const float preferred = curves.preferred[c];
    if (preferred <= 0.0f) continue;
    const auto errors = [&](int point) { return curves.errors[point * columns + c]; };
    sum += error_with_maximum(errors, curves.log_base[c], preferred, maximum);
  }
  sum = cta_sum(sum, parts);
  if (threadIdx.x != 0) return;
  curves.of_maximum[attempt] = value > 0.0f ? sum : static_cast<double>(INFINITY);
  curves.maxima[attempt] = bits;
}

constexpr int kCodesTried = 4;  // from two below the scale that a column prefers to one above

__device__ __forceinline__ std::uint16_t best_maximum(const Curves& curves) {
  int best = 0;
  for (int attempt = 1; attempt < kMaximaTried; ++attempt) {
    if (curves.of_maximum[attempt] < curves.of_maximum[best]) best = attempt;
  }
  return isfinite(curves.of_maximum[best]) ? curves.maxima[best] : std::uint16_t{0};
}

__global__ void __launch_bounds__(kGridColumns* kCodesTried)
    choose_codes_kernel(GroupWeights group, int bits, Curves curves, std::uint8_t* codes,
                        std::uint16_t* maximum) {
  __shared__ float scales[16];
  __shared__ float errors[kCodesTried][kGridColumns];
  pdl_trigger();
  pdl_wait();
  const std::uint16_t chosen = best_maximum(curves);
  if (threadIdx.y == 0 && threadIdx.x < 16) {
    scales[threadIdx.x] = exl2_column_scale(exl2_group_scale(chosen), threadIdx.x);
  }
  __syncthreads();
  const std::int64_t column = own_column();
  int near = 0;
  while (near < 16 && scales[near] < curves.preferred[column]) ++near;
  const auto code_of = [&](int attempt) { return min(max(near + attempt - 2, 0), 15); };
  const int attempt = static_cast<int>(threadIdx.y);
  errors[attempt][threadIdx.x] =
      grid_error(group.weights + column, group.out, group.importance, group.slots,
                 centered_grid(scales[code_of(attempt)], bits));
  __syncthreads();
  if (attempt != 0) return;
  int best = 0;
  for (int other = 1; other < kCodesTried; ++other) {
    if (errors[other][threadIdx.x] < errors[best][threadIdx.x]) best = other;
  }
  codes[column] = static_cast<std::uint8_t>(code_of(best));
  if (column == 0) *maximum = chosen;
}

constexpr int kSpanWarps = 8;

struct SpanChoice {
  float error;
  int number;  // of the candidate: of two that are equally good, the first is taken
  float scale;
  float zero;
};

// The grid from the smallest to the largest weight of a column, 0 included.
__device__ ColumnGrid spanning_grid(const GroupWeights& group, std::int64_t column,
                                    const GptqGridRules& rules) {
  float low = 0.0f, high = 0.0f;
  for (std::int64_t r = 0; r < group.slots; ++r) {
    const float weight = group.weights[r * group.out + column];
    low = fminf(low, weight);
    high = fmaxf(high, weight);
  }
  if (rules.symmetric) {
    high = fmaxf(high, -low);
    low = -high;
  }
  const float last = static_cast<float>((1 << rules.bits) - 1), span = high - low;
  const float scale = span > 0.0f ? stored_scale(span / last) : 1.0f;
  const float zero = fminf(fmaxf(rintf(-low / scale), rules.least_zero), rules.largest_zero);
  return {scale, zero, last};
}

__device__ __forceinline__ SpanChoice tried(const GroupWeights& group, std::int64_t column,
                                            int number, const ColumnGrid& grid) {
  const float error =
      grid_error(group.weights + column, group.out, group.importance, group.slots, grid);
  return {error, number, grid.scale, grid.zero};
}

// The best of the choices of all warps for a column.
__device__ SpanChoice best_of(const SpanChoice (*choices)[kGridColumns], int count) {
  SpanChoice best = choices[0][threadIdx.x];
  for (int other = 1; other < count; ++other) {
    const SpanChoice& choice = choices[other][threadIdx.x];
    const bool better =
        choice.error < best.error || (choice.error == best.error && choice.number < best.number);
    if (better) best = choice;
  }
  return best;
}

__global__ void __launch_bounds__(kGridColumns* kSpanWarps)
    search_spans_kernel(GroupWeights group, GptqGroup grids) {
  __shared__ SpanChoice choices[kSpanWarps][kGridColumns];
  pdl_trigger();
  pdl_wait();
  const GptqGridRules& rules = grids.rules;
  const std::int64_t column = own_column();
  const int warp = static_cast<int>(threadIdx.y);
  const ColumnGrid base = spanning_grid(group, column, rules);
  if (rules.min_max) {
    if (warp == 0) grids.store(column, base.scale, base.zero);
    return;
  }
  const int reach = rules.symmetric ? 0 : kZeroReach, shifts = 2 * reach + 1;
  SpanChoice own{INFINITY, kSpanPoints * shifts, base.scale, base.zero};
  for (int number = warp; number < kSpanPoints * shifts; number += kSpanWarps) {
    const float zero = base.zero + static_cast<float>(number % shifts - reach);
    const ColumnGrid grid{stored_scale(base.scale * span_ratio(number / shifts)),
                          fminf(fmaxf(zero, rules.least_zero), rules.largest_zero), base.last};
    const SpanChoice choice = tried(group, column, number, grid);
    if (choice.error < own.error) own = choice;
  }
  choices[warp][threadIdx.x] = own;
  __syncthreads();
  SpanChoice best = best_of(choices, kSpanWarps);
  __syncthreads();
  if (warp < kFineSteps) {
    const ColumnGrid grid{stored_scale(best.scale * fine_ratio(warp)), best.zero, base.last};
    choices[warp][threadIdx.x] = tried(group, column, warp, grid);
  }
  __syncthreads();
  if (warp != 0) return;
  const SpanChoice fine = best_of(choices, kFineSteps);
  if (fine.error < best.error) best = fine;
  grids.store(column, best.scale, best.zero);
}

static_assert(kFineSteps <= kSpanWarps);

void search(FittingDevice& device, const GroupWeights& group, const Exl2Group& grids,
            std::uint16_t* maximum, const Curves& curves) {
  const auto ctas = static_cast<unsigned>(group.out / kGridColumns);
  launch(shape_of(device.context(), ctas, dim3(kGridColumns, kCurvePoints)), measure_curves_kernel,
         group, grids.bits, curves);
  launch(shape_of(device.context(), kMaximaTried, kRowThreads), try_maxima_kernel, group.out,
         curves);
  launch(shape_of(device.context(), ctas, dim3(kGridColumns, kCodesTried)), choose_codes_kernel,
         group, grids.bits, curves, grids.codes, maximum);
}

void search(FittingDevice& device, const GroupWeights& group, const GptqGroup& grids,
            std::uint16_t*, const Curves&) {
  const auto ctas = static_cast<unsigned>(group.out / kGridColumns);
  launch(shape_of(device.context(), ctas, dim3(kGridColumns, kSpanWarps)), search_spans_kernel,
         group, grids);
}

}  // namespace

SearchScratch::SearchScratch(FittingDevice& device, std::int64_t out)
    : errors(device.take_array<float>(kCurvePoints * out)),
      log_base(device.take_array<float>(out)),
      preferred(device.take_array<float>(out)),
      of_maximum(device.take_array<double>(kMaximaTried)),
      maxima(device.take_array<std::uint16_t>(kMaximaTried)) {}

void search_grids(FittingDevice& device, const GroupWeights& group, const GroupGrids& grids,
                  const SearchScratch& scratch) {
  with_group(grids, [&](const auto& own) {
    search(device, group, own, grids.scales, curves_of(scratch));
  });
}

}  // namespace bl::cuda
