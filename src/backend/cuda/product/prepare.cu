#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/product/prepare.cuh"
#include "backend/cuda/product/product.h"

namespace bl::cuda {
namespace {

constexpr int kPrepareWarps = kPrepareThreads / 32;
constexpr int kTokenWords = kUnitSlots / 2;  // of a token and unit

struct PrepareLaunch {
  PrepareTarget targets[kMaxMatrices];
  const float* x = nullptr;
  std::int64_t stride = 0;
  int in = 0;
  int tile = 0;
  bool bricks = false;
  float* token_scales = nullptr;
  InputNorm norm;
  std::int32_t* zeros = nullptr;
  int zero_count = 0;
  bool aligned = false;  // rows and weights start at multiples of 16 bytes, and have whole float4s
};

__device__ __forceinline__ float weight_of(const PrepareLaunch& p, int channel) {
  return p.norm.weight == nullptr ? 1.0f : p.norm.weight[channel] + p.norm.unit_offset;
}

// What a CTA learns of its row.
struct RowFacts {
  float largest = 0.0f;  // of |x · weight|
  float squares = 0.0f;  // Σ x²
  __device__ __forceinline__ void add(float x, float weight) {
    largest = fmaxf(largest, fabsf(x * weight));
    squares += x * x;
  }
};

// A row as the threads of a CTA look at it: Held float4s of a thread under way at once. Weights
// come with the row: asked for before the kernel before has ended, they cost 2 to 4 % of a step
// (bench/ladder/few_tokens).
template <bool Normalise, int Held>
class RowLook {
 public:
  __device__ __forceinline__ static RowFacts look_at(const PrepareLaunch& p, const float* row) {
    RowFacts facts;
    if (!p.aligned) {
      for (int i = static_cast<int>(threadIdx.x); i < p.in; i += kPrepareThreads) {
        facts.add(row[i], Normalise ? weight_of(p, i) : 1.0f);
      }
      return facts;
    }
#pragma unroll 1
    for (int first = 0; first < p.in; first += Held * kPrepareThreads * 4) {
      add_held(p, row, first, facts);
    }
    return facts;
  }

 private:
  __device__ __forceinline__ static int channel(int first, int k) {
    return first + (k * kPrepareThreads + static_cast<int>(threadIdx.x)) * 4;
  }
  __device__ __forceinline__ static void load(const PrepareLaunch& p, const float* from, int first,
                                              float4 (&to)[Held]) {
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int at = channel(first, k);
      to[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at < p.in) to[k] = *reinterpret_cast<const float4*>(from + at);
    }
  }
  __device__ __forceinline__ static void add_held(const PrepareLaunch& p, const float* row,
                                                  int first, RowFacts& facts) {
    float4 weights[Held];
    const bool weighted = Normalise && p.norm.weight != nullptr;
    if (weighted) load(p, p.norm.weight, first, weights);
    float4 values[Held];
    load(p, row, first, values);
    const float offset = p.norm.unit_offset;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const float4& v = values[k];
      const float4& w = weights[k];
      facts.add(v.x, weighted ? w.x + offset : 1.0f);
      facts.add(v.y, weighted ? w.y + offset : 1.0f);
      facts.add(v.z, weighted ? w.z + offset : 1.0f);
      facts.add(v.w, weighted ? w.w + offset : 1.0f);
    }
  }
};

// A warp a chunk. grid (chunks, tokens, targets): each CTA looks at its whole row by itself, which
// costs less than a kernel of its own.
template <bool Normalise, int Held>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const __grid_constant__ PrepareLaunch p) {
  allow_next();
  __shared__ float parts[2][kPrepareThreads / 32];
  const int token = static_cast<int>(blockIdx.y);
  const int warp = warp_index();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const PrepareTarget& target = p.targets[blockIdx.z];
  const int number = static_cast<int>(blockIdx.x) * kPrepareWarps + warp;  // of the chunk
  // Weights' data: may be read before the activations are there.
  uint4 chunk = make_uint4(0, 0, 0, 0);
  if (number < target.chunk_count) {
    chunk = __ldg(reinterpret_cast<const uint4*>(target.chunks) + number);
  }
  const int first = static_cast<int>(chunk.z & 0xffffu);
  const int units = static_cast<int>(chunk.w >> 8 & 0xffu);
  int channels[kMaxChunkUnits];
  float weights[kMaxChunkUnits];
#pragma unroll
  for (int u = 0; u < kMaxChunkUnits; ++u) {
    channels[u] = u < units ? target.channel_of_slot[(first + u) * kUnitSlots + lane] : -1;
    weights[u] = Normalise && channels[u] >= 0 ? weight_of(p, channels[u]) : 1.0f;
  }
  dependency_wait();
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < p.zero_count; i += kPrepareThreads) {
      p.zeros[i] = 0;
    }
  }
  const float* row = p.x + token * p.stride;
  float values[kMaxChunkUnits];
#pragma unroll
  for (int u = 0; u < kMaxChunkUnits; ++u) {
    values[u] = channels[u] < 0 ? 0.0f : row[channels[u]] * weights[u];
  }
  const RowFacts facts = RowLook<Normalise, Held>::look_at(p, row);
  float largest = cta_max(facts.largest, parts[0]);
  float factor = 1.0f;
  if (Normalise) {
    factor = rsqrtf(cta_sum(facts.squares, parts[1]) / static_cast<float>(p.in) + p.norm.eps);
    largest *= factor;
  }
  const float power = power_of_two_for(largest, kInputExponent);
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.z == 0) p.token_scales[token] = power;
  const int tile = token / p.tile * p.tile;
  const int in_tile = min(p.tile, static_cast<int>(gridDim.y) - tile);
  std::uint32_t* fragments = target.fragments + std::int64_t{tile} * target.units * kTokenWords;
  factor /= power;
  const int columns = brick_columns(in_tile);
  const PreparedRow to = p.bricks ? PreparedRow{fragments + (token - tile) * 4, columns}
                                  : PreparedRow{fragments + (token - tile) * kTokenWords, in_tile};
  float sum = 0.0f;
#pragma unroll
  for (int u = 0; u < kMaxChunkUnits; ++u) {
    if (u >= units) break;
    const float value = values[u] * factor;
    sum +=
        p.bricks ? to.store_bricks(first + u, value, lane) : to.store_unit(first + u, value, lane);
  }
  sum = warp_sum(sum);
  if (lane != 0 || units == 0) return;
  const std::int64_t sums_of_token = p.bricks ? target.chunk_count : target.units;
  target.chunk_sums[tile * sums_of_token + (p.bricks ? number : first) * columns + token - tile] =
      sum * kCodeUnit;
}

}  // namespace

void prepare(ExecContext& ctx, const PrepareArgs& args) {
  PrepareLaunch p;
  int chunks = 0;
  for (int i = 0; i < args.count; ++i) {
    p.targets[i] = args.targets[i];
    chunks = std::max(chunks, args.targets[i].chunk_count);
  }
  p.x = args.x.as<const float>();
  p.stride = args.x.row_stride;
  p.in = static_cast<int>(args.x.columns());
  p.tile = args.tile;
  p.bricks = args.bricks;
  p.token_scales = args.token_scales;
  p.norm = args.norm;
  p.zeros = args.zeros;
  p.zero_count = args.zero_count;
  const auto whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  p.aligned = whole(p.x) && whole(p.norm.weight) && p.stride % 4 == 0 && p.in % 4 == 0;
  const dim3 grid((chunks + kPrepareWarps - 1) / kPrepareWarps,
                  static_cast<unsigned>(args.x.rows()), static_cast<unsigned>(args.count));
  const LaunchShape shape = shape_of(ctx, grid, kPrepareThreads);
  // As many float4s as a thread has; more code than that costs more than a second round.
  const int held = (p.in + 4 * kPrepareThreads - 1) / (4 * kPrepareThreads);
  if (args.norm.present) {
    launch(shape, held <= 2 ? prepare_kernel<true, 2> : prepare_kernel<true, 4>, p);
  } else {
    launch(shape,
           held <= 2   ? prepare_kernel<false, 2>
           : held <= 4 ? prepare_kernel<false, 4>
           : held <= 8 ? prepare_kernel<false, 8>
                       : prepare_kernel<false, 16>,
           p);
  }
}

}  // namespace bl::cuda
