#pragma once
// The activations of a single token, made ready by every CTA for itself: normalised, divided by a
// power of two, put where fragment_place says. That costs less than a launch of its own.

#include <cuda_fp16.h>

#include "backend/cuda/piece_ring.cuh"
#include "backend/cuda/prepare.cuh"
#include "backend/cuda/warp_reduce.cuh"

namespace bl::cuda {

inline constexpr int kProductThreads = kProductWarps * 32;  // that multiply

// Of the multiplying warps alone.
__device__ __forceinline__ void product_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
}

// A row's channels as a thread holds them: kHeld · 4 · kProductThreads of them at a time.
class RowBlock {
 public:
  static constexpr int kHeld = 8;
  static constexpr int kChannels = kHeld * 4 * kProductThreads;

  __device__ __forceinline__ RowBlock(int first, int in)
      : first_(first + static_cast<int>(threadIdx.x) * 4), in_(in) {}

  // Where the channels go: weights' data, which may be read before the row is there.
  __device__ __forceinline__ void load_places(const std::uint16_t* place_of_channel) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (channel(i) >= in_) break;
      places_[i] = *reinterpret_cast<const uint2*>(place_of_channel + channel(i));
    }
  }
  __device__ __forceinline__ void load(const float* row, const InputNorm& norm, float& squares) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      values_[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (channel(i) < in_) values_[i] = *reinterpret_cast<const float4*>(row + channel(i));
    }
    if (!norm.present) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (channel(i) >= in_) break;
      float4& v = values_[i];
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      if (norm.weight == nullptr) continue;
      const float4 w = *reinterpret_cast<const float4*>(norm.weight + channel(i));
      v.x *= w.x + norm.unit_offset;
      v.y *= w.y + norm.unit_offset;
      v.z *= w.z + norm.unit_offset;
      v.w *= w.w + norm.unit_offset;
    }
  }
  __device__ __forceinline__ float largest() const {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float4& v = values_[i];
      most = fmaxf(fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
    }
    return most;
  }
  __device__ __forceinline__ void store(float factor, __half* fragments) const {
    const float second = factor * 0.0625f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (channel(i) >= in_) break;
      put(fragments, places_[i].x & 0xffffu, values_[i].x, factor, second);
      put(fragments, places_[i].x >> 16, values_[i].y, factor, second);
      put(fragments, places_[i].y & 0xffffu, values_[i].z, factor, second);
      put(fragments, places_[i].y >> 16, values_[i].w, factor, second);
    }
  }

 private:
  __device__ __forceinline__ int channel(int i) const { return first_ + i * 4 * kProductThreads; }
  // Registers 2 and 3 of a lane are the slots whose codes come out 16 times too large: `second`.
  __device__ __forceinline__ static void put(__half* fragments, std::uint32_t place, float value,
                                             float factor, float second) {
    fragments[place] = __float2half_rn(value * ((place & 4u) != 0 ? second : factor));
  }
  float4 values_[kHeld];
  uint2 places_[kHeld];
  int first_;
  int in_;
};

struct RowSums {
  float largest[kProductWarps];
  float squares[kProductWarps];
};

// Σx² and the largest |x · weight| of the threads' parts of a row → what its values are to be
// multiplied by, and (returned) what that has divided them by.
__device__ __forceinline__ float row_power(const ProductArgs& args, float largest, float squares,
                                           RowSums& sums, float& factor) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  largest = warp_max(largest);
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) {
    sums.largest[warp] = largest;
    sums.squares[warp] = squares;
  }
  product_sync();
  squares = 0.0f;
#pragma unroll
  for (int w = 0; w < kProductWarps; ++w) {
    largest = fmaxf(largest, sums.largest[w]);
    squares += sums.squares[w];
  }
  factor = 1.0f;
  if (args.norm.present) {
    factor = rsqrtf(squares * args.norm.share + args.norm.eps);
  }
  const float power = power_of_two_for(largest * factor, kInputExponent);
  factor *= __uint_as_float((254u << 23) - __float_as_uint(power));  // 1 / power
  return power;
}

// Behind the fragments of a gather, the sums of its units, times kCodeUnit.
BL_HD constexpr int gather_bytes(int units) {
  return RingShape::rounded(units * (kFragmentBytes + static_cast<int>(sizeof(float))));
}

// The sums of units, of complete fragments: four lanes a unit.
__device__ __forceinline__ void sum_units(const __half* fragments, int units) {
  const auto* lanes = reinterpret_cast<const uint4*>(fragments);
  auto* sums = reinterpret_cast<float*>(const_cast<__half*>(fragments) + units * kUnitSlots);
  const auto pair_sum = [](std::uint32_t pair) {
    const float2 x = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return x.x + x.y;
  };
  for (int i = static_cast<int>(threadIdx.x); i / 32 * 32 < units * 4; i += kProductThreads) {
    float sum = 0.0f;
    if (i < units * 4) {
      const uint4 x = lanes[i];
      sum = pair_sum(x.x) + pair_sum(x.y) + 16.0f * (pair_sum(x.z) + pair_sum(x.w));
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (i % 4 == 0 && i < units * 4) sums[i / 4] = sum * kCodeUnit;
  }
}

// The matrices that a share reads its row for, and where the fragments go: those of equal gathers
// are the same.
struct OwnInput {
  int first_matrix = 0;
  int end_matrix = 0;
  std::byte* fragments = nullptr;  // [gathers][bytes]
  int bytes = 0;

  __device__ __forceinline__ __half* of(const ProductMatrix& m) const {
    return reinterpret_cast<__half*>(fragments + m.gather * bytes);
  }
  // f(matrix) for the first of each gather.
  template <class F>
  __device__ __forceinline__ void for_each(const ProductArgs& args, const F& f) const {
    for (int i = first_matrix; i < end_matrix; ++i) {
      bool made = false;
      for (int j = first_matrix; j < i; ++j) {
        made = made || args.matrices[j].gather == args.matrices[i].gather;
      }
      if (!made) f(args.matrices[i]);
    }
  }
};

// Slots without a channel are zero.
__device__ __forceinline__ void clear_padding(const ProductArgs& args, const OwnInput& to) {
  to.for_each(args, [&](const ProductMatrix& m) {
    if (m.view.units * kUnitSlots == args.in) return;
    auto* words = reinterpret_cast<uint4*>(to.of(m));
    for (int i = static_cast<int>(threadIdx.x); i < m.view.units * kFragmentBytes / 16;
         i += kProductThreads) {
      words[i] = make_uint4(0, 0, 0, 0);
    }
  });
}

// A row that the threads cannot hold at once is read twice.
static __device__ __noinline__ float make_long_fragments(const ProductArgs& args,
                                                         const OwnInput& to, RowSums& sums) {
  float squares = 0.0f;
  float largest = 0.0f;
#pragma unroll 1
  for (int at = 0; at < args.in; at += RowBlock::kChannels) {
    RowBlock block(at, args.in);
    block.load(args.x, args.norm, squares);
    largest = fmaxf(largest, block.largest());
  }
  float factor;
  const float power = row_power(args, largest, squares, sums, factor);
#pragma unroll 1
  for (int at = 0; at < args.in; at += RowBlock::kChannels) {
    RowBlock block(at, args.in);
    block.load(args.x, args.norm, squares);
    to.for_each(args, [&](const ProductMatrix& m) {
      block.load_places(m.place_of_channel);
      block.store(factor, to.of(m));
    });
  }
  return power;
}

// The one row of a product, as fragments for the matrices of a share, without the sums of units;
// complete after the next product_sync(). Returns what the row was divided by.
__device__ __forceinline__ float scatter_row(const ProductArgs& args, const OwnInput& to,
                                             RowSums& sums) {
  clear_padding(args, to);
  if (args.in > RowBlock::kChannels) {
    dependency_wait();
    return make_long_fragments(args, to, sums);
  }
  RowBlock row(0, args.in);
  const ProductMatrix& first = args.matrices[to.first_matrix];
  row.load_places(first.place_of_channel);
  dependency_wait();
  float squares = 0.0f;
  row.load(args.x, args.norm, squares);
  float factor;
  const float power = row_power(args, row.largest(), squares, sums, factor);
  to.for_each(args, [&](const ProductMatrix& m) {
    if (&m != &first) row.load_places(m.place_of_channel);
    row.store(factor, to.of(m));
  });
  return power;
}

// The same with the sums, and complete for all threads. Thread 0 stores what the row was divided
// by.
__device__ __forceinline__ void make_fragments(const ProductArgs& args, const OwnInput& to,
                                               RowSums& sums, float& power) {
  const float divided_by = scatter_row(args, to, sums);
  if (threadIdx.x == 0) power = divided_by;
  product_sync();
  to.for_each(args, [&](const ProductMatrix& m) { sum_units(to.of(m), m.view.units); });
  product_sync();
}

}  // namespace bl::cuda
