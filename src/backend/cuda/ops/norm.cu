// RMS norm and layer norm (ops/elementwise.h) of each segment of each row. Segments of up to 512
// elements take one warp, of up to 16,384 one CTA; both hold the segment in registers and read it
// once. All others, and unaligned ones, take norm_any_kernel. Bound by latency for a few rows and
// by memory for many.

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/ops/row_ops.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct NormParameters {
  Rows<float> x;
  Rows<float> out;
  const float* weight;  // may be null
  const float* bias;    // may be null
  std::int64_t rows;    // tokens
  int segments;
  int width;
  std::int64_t parameter_step;  // from the weights and biases of a segment to the next segment's
  float eps;
  float offset;  // 1 where weight means (1 + weight)
  bool centred;
};

// One segment of one row, and its parameters.
struct Segment {
  float* x;
  float* out;
  const float* weight;
  const float* bias;
};

__device__ __forceinline__ Segment segment_at(const NormParameters& p, std::int64_t index) {
  const std::int64_t row = index / p.segments;
  const std::int64_t segment = index - row * p.segments;
  const std::int64_t first = segment * p.width;
  const std::int64_t parameter = segment * p.parameter_step;
  return {p.x[row] + first, p.out[row] + first,
          p.weight != nullptr ? p.weight + parameter : nullptr,
          p.bias != nullptr ? p.bias + parameter : nullptr};
}

// The threads that share a segment, and how they sum over it.
struct WarpTeam {
  __device__ static int index() { return lane_index(); }
  __device__ static constexpr int size() { return 32; }
  __device__ float sum(float value, int) const { return warp_sum(value); }
};
struct CtaTeam {
  float (*parts)[32];  // shared memory for cta_sum(), one row for each of the two sums
  __device__ static int index() { return static_cast<int>(threadIdx.x); }
  __device__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ float sum(float value, int which) const { return cta_sum(value, parts[which]); }
};

__device__ __forceinline__ float normalised(const NormParameters& p, const Segment& s, float x,
                                            int i) {
  if (s.weight != nullptr) x *= p.offset + s.weight[i];
  return s.bias != nullptr ? x + s.bias[i] : x;
}

// Normalises a segment that is held in registers: kPacks vectors of four elements a thread. It
// loads the weights before pdl_wait(), since no kernel writes them.
template <int kPacks, class Team>
__device__ __forceinline__ void norm_in_registers(const NormParameters& p, const Segment& s,
                                                  const Team& team) {
  Pack<float, 4> weights[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = (j * team.size() + team.index()) * 4;
    weights[j] = {{1.0f, 1.0f, 1.0f, 1.0f}};
    if (s.weight == nullptr || i >= p.width) continue;
    weights[j] = load_pack<4>(s.weight + i);
    for (int e = 0; e < 4; ++e) weights[j].at[e] += p.offset;
  }
  pdl_wait();
  Pack<float, 4> values[kPacks];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = (j * team.size() + team.index()) * 4;
    values[j] = {};
    if (i >= p.width) continue;
    values[j] = load_pack<4>(s.x + i);
  }
  const float share = 1.0f / static_cast<float>(p.width);
  float mean = 0.0f;
  if (p.centred) {
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      for (int e = 0; e < 4; ++e) sum += values[j].at[e];
    }
    mean = team.sum(sum, 0) * share;
  }
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if ((j * team.size() + team.index()) * 4 >= p.width) continue;
    for (int e = 0; e < 4; ++e) {
      const float d = values[j].at[e] - mean;
      squares += d * d;
    }
  }
  const float inverse = rsqrtf(team.sum(squares, 1) * share + p.eps);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = (j * team.size() + team.index()) * 4;
    if (i >= p.width) continue;
    Pack<float, 4> bias{};
    if (s.bias != nullptr) bias = load_pack<4>(s.bias + i);
    for (int e = 0; e < 4; ++e) {
      const float unit = (values[j].at[e] - mean) * inverse;
      values[j].at[e] = unit * weights[j].at[e] + bias.at[e];
    }
    store_pack(s.out + i, values[j]);
  }
}

constexpr int kWarpsOfHeads = 8;  // warps of a CTA of norm_warp_kernel, each with a segment

template <int kPacks>
__global__ void __launch_bounds__(kWarpsOfHeads * 32) norm_warp_kernel(NormParameters p) {
  pdl_trigger();
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * kWarpsOfHeads + threadIdx.x / 32;
  if (index >= p.rows * p.segments) return;  // at the end, only warps with a segment wait
  norm_in_registers<kPacks>(p, segment_at(p, index), WarpTeam{});
}

template <int kPacks>
__global__ void __launch_bounds__(1024) norm_cta_kernel(NormParameters p) {
  __shared__ float parts[2][32];
  pdl_trigger();
  norm_in_registers<kPacks>(p, segment_at(p, blockIdx.x), CtaTeam{parts});
}

// Norms of any width and alignment. Reads the segment two or three times.
__global__ void __launch_bounds__(256) norm_any_kernel(NormParameters p) {
  __shared__ float parts[2][32];
  pdl_trigger();
  pdl_wait();
  const CtaTeam team{parts};
  const Segment s = segment_at(p, blockIdx.x);
  float sum = 0.0f;
  for (int i = team.index(); i < p.width; i += team.size()) {
    sum += s.x[i];
  }
  const float share = 1.0f / static_cast<float>(p.width);
  const float mean = p.centred ? team.sum(sum, 0) * share : 0.0f;
  float squares = 0.0f;
  for (int i = team.index(); i < p.width; i += team.size()) {
    const float d = s.x[i] - mean;
    squares += d * d;
  }
  const float inverse = rsqrtf(team.sum(squares, 1) * share + p.eps);
  for (int i = team.index(); i < p.width; i += team.size()) {
    s.out[i] = normalised(p, s, (s.x[i] - mean) * inverse, i);
  }
}

bool in_fours(const NormArgs& args) {
  return args.x.shape[2] % 4 == 0 && allows_vector_access(args.x, 4) &&
         allows_vector_access(args.out, 4) && array_allows_vector_access(args.weight, 4) &&
         array_allows_vector_access(args.bias, 4);
}

void launch_norm(ExecContext& ctx, const NormParameters& p, bool fours) {
  const std::int64_t segments = p.rows * p.segments;
  if (segments == 0 || p.width == 0) return;
  const int packs = ceil_div(p.width, 4);
  if (!fours || packs > 4096) {
    launch(shape_of(ctx, dim3(static_cast<unsigned>(segments)), dim3(256)), norm_any_kernel, p);
  } else if (packs <= 128) {
    const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(segments, kWarpsOfHeads)));
    const LaunchShape shape = shape_of(ctx, grid, dim3(kWarpsOfHeads * 32));
    launch(shape, packs <= 32 ? norm_warp_kernel<1> : norm_warp_kernel<4>, p);
  } else {
    // Two vectors a thread, or four in segments that would need more than 1024 threads.
    const bool wide = packs > 2048;
    const int threads = std::min(1024, ceil_div(ceil_div(packs, wide ? 4 : 2), 32) * 32);
    const LaunchShape shape =
        shape_of(ctx, dim3(static_cast<unsigned>(segments)), dim3(static_cast<unsigned>(threads)));
    launch(shape, wide ? norm_cta_kernel<4> : norm_cta_kernel<2>, p);
  }
}

NormParameters parameters_of(const NormArgs& args) {
  const std::int64_t width = args.x.shape[2];
  const TensorView& parameter = args.weight.empty() ? args.bias : args.weight;
  const bool each = !parameter.empty() && parameter.shape.elements() > width;
  return {.x = rows_of<float>(args.x),
          .out = rows_of<float>(args.out),
          .weight = args.weight.as<const float>(),
          .bias = args.bias.as<const float>(),
          .rows = args.x.shape[0],
          .segments = static_cast<int>(args.x.shape[1]),
          .width = static_cast<int>(width),
          .parameter_step = each ? width : 0,
          .eps = args.eps,
          .offset = args.unit_offset ? 1.0f : 0.0f,
          .centred = args.kind == NormKind::kLayer};
}

}  // namespace

void norm(ExecContext& ctx, const NormArgs& args) {
  launch_norm(ctx, parameters_of(args), in_fours(args));
}

}  // namespace bl::cuda
