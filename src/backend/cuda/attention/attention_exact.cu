// The exact attention kernel: one CTA of 128 threads for each (query head, token, span). It takes
// keys in rounds of 128, one a thread for the scores, then one value dimension a thread for P · V.
// Online softmax in F32 without tensor cores; any cache type, head size and card. It is the slow
// path and not optimized.

#include "backend/cuda/attention/attention_exact.h"

#include <algorithm>

#include "backend/cuda/attention/attention_launch.cuh"
#include "backend/cuda/attention/kv_codec.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {
namespace {

constexpr int kThreads = 128;  // also the keys of a round, one a thread

// Dynamic shared memory: the query, the running Σ P · V, and P of a round.
std::size_t shared_bytes(int k_dim, int v_dim) {
  return sizeof(float) * static_cast<std::size_t>(k_dim + v_dim + kThreads);
}

// Sum or maximum over the CTA, in a fixed order. All threads get the result.
__device__ __forceinline__ float over_cta(float x, bool is_max, float* smem) {
  const int warp = warp_index();
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, distance);
    x = is_max ? fmaxf(x, other) : x + other;
  }
  if (threadIdx.x % 32 == 0) smem[warp] = x;
  __syncthreads();
  x = smem[0];
  for (int w = 1; w < kThreads / 32; ++w) x = is_max ? fmaxf(x, smem[w]) : x + smem[w];
  __syncthreads();
  return x;
}

// Applies the rotation of integer caches (ops/kv_codec.h) to a head in shared memory, one warp a
// group.
__device__ __forceinline__ void rotate_head(float* x, int dim) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  for (int d = warp_index() * kKvScaleGroup; d < dim; d += kThreads) {
    const int count = min(dim - d, kKvScaleGroup);
    const float y = rotate_group(lane < count ? x[d + lane] : 0.0f, count);
    if (lane < count) x[d + lane] = y;
  }
  __syncthreads();
}

// The query row of a CTA.
struct ExactRow {
  const std::int32_t* pages = nullptr;
  int kv_head = 0;
  int head = 0;
  int position = 0;
};

// The cache row of the key (`keys`) or value at position `key`.
__device__ const std::byte* row_at(const AttentionParams& p, const ExactRow& row, bool keys,
                                   int key) {
  const auto page = static_cast<std::int64_t>(row.pages[key / kPageSlots]);
  const int slot = row.kv_head * kPageSlots + key % kPageSlots;
  return keys ? p.k + page * p.k_page_bytes + static_cast<std::int64_t>(slot) * p.k_row.bytes
              : p.v + page * p.v_page_bytes + static_cast<std::int64_t>(slot) * p.v_row.bytes;
}

template <Widths kWidths>
__device__ __forceinline__ float score_of(const AttentionParams& p, const ExactRow& row,
                                          const float* q, int key) {
  const std::byte* k = row_at(p, row, true, key);
  float sums[8] = {};  // eight short sums have less rounding error than a long one
  if (p.k_row.code == KvRow::Code::kF32) {
    const auto* floats = reinterpret_cast<const float*>(k);
    int d = 0;
    for (; d + 8 <= p.k_row.dim; d += 8) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] = fmaf(q[d + i], floats[d + i], sums[i]);
    }
    for (; d < p.k_row.dim; ++d) sums[0] = fmaf(q[d], floats[d], sums[0]);
  } else {
    for (int d = 0; d < p.k_row.dim; ++d) {
      sums[0] = fmaf(q[d], decode_element<kWidths>(p.k_row, k, d), sums[0]);
    }
  }
  float score =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  score *= p.scale;
  if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
  if (p.slopes != nullptr) score += p.slopes[row.head] * static_cast<float>(key - row.position);
  return score;
}

// The row's running maximum and Σ P, the same in all threads.
struct Running {
  float max_score = -INFINITY;
  float exp_sum = 0.0f;
};

// The shared memory of a CTA.
struct ExactBuffers {
  const float* q;  // [k_dim]
  float* sum;      // [v_dim]
  float* probs;    // [kThreads]
};

// A round of keys [first, end), at most kThreads.
struct KeyRange {
  int first;
  int end;
};

// Adds the keys and values of a round to the row.
template <Widths kWidths>
__device__ __forceinline__ void add_keys(const AttentionParams& p, const ExactRow& row,
                                         const ExactBuffers& held, const KeyRange& keys,
                                         Running& running) {
  __shared__ float smem[kThreads / 32];
  const auto [first, end] = keys;
  const auto [q, sum, probs] = held;
  const int key = first + static_cast<int>(threadIdx.x);
  const float score = key < end ? score_of<kWidths>(p, row, q, key) : -INFINITY;
  const float max_score = fmaxf(running.max_score, over_cta(score, true, smem));
  const float share = expf(score - max_score);
  probs[threadIdx.x] = share;
  const float rescale = expf(running.max_score - max_score);
  running.exp_sum = running.exp_sum * rescale + over_cta(share, false, smem);
  running.max_score = max_score;
  for (int d = static_cast<int>(threadIdx.x); d < p.v_row.dim; d += kThreads) {
    float value = sum[d] * rescale;
    for (int i = 0; first + i < end; ++i) {
      const std::byte* v = row_at(p, row, false, first + i);
      const float x = p.v_row.code == KvRow::Code::kF32 ? reinterpret_cast<const float*>(v)[d]
                                                        : decode_element<kWidths>(p.v_row, v, d);
      value = fmaf(probs[i], x, value);
    }
    sum[d] = value;
  }
  __syncthreads();
}

// Grid (query heads, most tokens of a span, spans).
template <Widths kWidths>
__global__ void __launch_bounds__(kThreads)
    exact_kernel(const __grid_constant__ AttentionParams p) {
  pdl_trigger();
  pdl_wait();
  extern __shared__ float shared[];
  const SpanEntry span = p.spans[blockIdx.z];
  const auto token = static_cast<int>(blockIdx.y);
  if (token >= span.tokens) return;
  const auto head = static_cast<int>(blockIdx.x);
  const ExactRow row{p.pages + static_cast<std::int64_t>(blockIdx.z) * p.page_stride,
                     head / p.group, head, span.past + token};
  const int k_dim = p.k_row.dim;
  const int v_dim = p.v_row.dim;
  float* q = shared;
  float* sum = q + k_dim;
  float* probs = sum + v_dim;
  const float* from =
      p.q + (span.first_token + token) * p.q_stride + static_cast<std::int64_t>(head) * k_dim;
  for (int d = static_cast<int>(threadIdx.x); d < k_dim; d += kThreads) q[d] = from[d];
  for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) sum[d] = 0.0f;
  __syncthreads();
  if (p.k_row.code == KvRow::Code::kInt) rotate_head(q, k_dim);
  const int first = p.window > 0 && row.position >= p.window ? row.position + 1 - p.window : 0;
  Running running;
  for (int key = first; key <= row.position; key += kThreads) {
    add_keys<kWidths>(p, row, {q, sum, probs}, {key, min(key + kThreads, row.position + 1)},
                      running);
  }
  if (p.sinks != nullptr) {
    const float max_score = fmaxf(running.max_score, p.sinks[head]);
    const float rescale = expf(running.max_score - max_score);
    running.exp_sum = running.exp_sum * rescale + expf(p.sinks[head] - max_score);
    for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) sum[d] *= rescale;
    __syncthreads();
  }
  if (p.v_row.code == KvRow::Code::kInt) rotate_head(sum, v_dim);
  float* out =
      p.out + (span.first_token + token) * p.out_stride + static_cast<std::int64_t>(head) * v_dim;
  for (int d = static_cast<int>(threadIdx.x); d < v_dim; d += kThreads) {
    out[d] = sum[d] / running.exp_sum;
  }
}

}  // namespace

void attention_exact(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan) {
  const SpanPlan& host = plan.host;
  const int tokens = std::max(host.decode_tokens, host.prefill_tokens);
  const std::size_t bytes = shared_bytes(params.k_row.dim, params.v_row.dim);
  const dim3 grid(static_cast<unsigned>(params.kv_heads * params.group),
                  static_cast<unsigned>(tokens), static_cast<unsigned>(host.spans()));
  const auto kernel = widths_of(params.k_row, params.v_row) == Widths::kAny
                          ? exact_kernel<Widths::kAny>
                          : exact_kernel<Widths::kUsual>;
  allow_shared_bytes(kernel, bytes);
  launch(shape_of(ctx, grid, dim3(kThreads), bytes), kernel, params);
}

}  // namespace bl::cuda
