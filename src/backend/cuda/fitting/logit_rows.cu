#include "backend/cuda/fitting/logit_rows.h"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/row_sums.cuh"

namespace bl::cuda {
namespace {

struct RowSums {
  float maxima[kRowThreads / 32];
  double sums[kRowThreads / 32];
  double more[kRowThreads / 32];
};

// The largest logit of a row and the logarithm of Σ exp(x − largest). All threads call it once.
struct LogSumExp {
  float largest;
  double log_sum;
  __device__ LogSumExp(const float* row, std::int64_t columns, RowSums& shared) {
    float own = -INFINITY;
    for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) own = fmaxf(own, row[c]);
    largest = cta_max(own, shared.maxima);
    double sum = 0.0;
    for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
      sum += expf(row[c] - largest);
    }
    log_sum = log(cta_sum(sum, shared.sums));
  }
  __device__ double log_probability(float logit) const {
    return static_cast<double>(logit) - largest - log_sum;
  }
};

__global__ void __launch_bounds__(kRowThreads)
    softmax_rows_kernel(Rows<float> p, Rows<const float> logits, std::int64_t columns,
                        double* entropies) {
  __shared__ RowSums shared;
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = blockIdx.x;
  const LogSumExp sum(logits[row], columns, shared);
  double entropy = 0.0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    const double log_p = sum.log_probability(logits[row][c]);
    const double value = exp(log_p);
    p[row][c] = static_cast<float>(value);
    entropy -= value * log_p;
  }
  entropy = cta_sum(entropy, shared.more);
  if (threadIdx.x == 0) entropies[row] = entropy;
}

__global__ void __launch_bounds__(kRowThreads)
    divergence_rows_kernel(Rows<const float> p, const double* entropies, Rows<const float> logits,
                           std::int64_t columns, double* divergences) {
  __shared__ RowSums shared;
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = blockIdx.x;
  const LogSumExp sum(logits[row], columns, shared);
  double cross = 0.0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    cross -= static_cast<double>(p[row][c]) * (logits[row][c] - sum.largest);
  }
  cross = cta_sum(cross, shared.more);
  if (threadIdx.x == 0) {
    const double divergence = cross + sum.log_sum - entropies[row];
    divergences[row] = divergence < 0.0 ? 0.0 : divergence;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    log_probability_rows_kernel(Rows<const float> logits, const std::int32_t* ids,
                                std::int64_t columns, double* log_p) {
  __shared__ RowSums shared;
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = blockIdx.x;
  const LogSumExp sum(logits[row], columns, shared);
  if (threadIdx.x == 0) log_p[row] = sum.log_probability(logits[row][ids[row]]);
}

LaunchShape one_cta_a_row(FittingDevice& device, const TensorView& rows) {
  return shape_of(device.context(), static_cast<unsigned>(rows.rows()), kRowThreads);
}

}  // namespace

void softmax_rows(FittingDevice& device, const TensorView& p, const TensorView& logits,
                  double* entropies) {
  launch(one_cta_a_row(device, logits), softmax_rows_kernel, rows_of<float>(p),
         rows_of<const float>(logits), logits.columns(), entropies);
}

void divergence_rows(FittingDevice& device, const TensorView& p, const double* entropies,
                     const TensorView& logits, double* divergences) {
  launch(one_cta_a_row(device, logits), divergence_rows_kernel, rows_of<const float>(p), entropies,
         rows_of<const float>(logits), logits.columns(), divergences);
}

void log_probability_rows(FittingDevice& device, const TensorView& logits, const std::int32_t* ids,
                          double* log_p) {
  launch(one_cta_a_row(device, logits), log_probability_rows_kernel, rows_of<const float>(logits),
         ids, logits.columns(), log_p);
}

}  // namespace bl::cuda
