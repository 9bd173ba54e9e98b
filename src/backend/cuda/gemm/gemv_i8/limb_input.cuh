#pragma once
// The activations of one or two tokens, made ready by every CTA for itself: put into the order of
// slots, then made digits where they lie (code_limbs.cuh). That costs less than a launch of its
// own. The factors of a norm are left to the results.

#include "backend/cuda/device/async_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_pipeline.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"

namespace bl::cuda {

// What a kernel can do (gemv_i8.cu): any product; plain ones; and, too, those of which one
// leaves SiLU of a gate and up as they are, and one reads a row times another.
enum class GemvVariant : std::uint8_t { kAny, kPlain, kPlainDeferredMul };
constexpr bool is_plain(GemvVariant form) { return form != GemvVariant::kAny; }

// Rows' channels as a thread holds them: kHeld · 4 · kConsumerThreads of each at a time.
template <int Tokens, GemvVariant kForm>
class RowBlock {
 public:
  static constexpr int kHeld = 8 / Tokens;
  // Of rows that have a norm or a rest: in plain products they are shorter (gemv_i8.cu).
  static constexpr int kNormed = is_plain(kForm) ? 5 : kHeld;
  static constexpr int kFeatures = kHeld * 4 * kConsumerThreads;
  static constexpr int kNormedFeatures = kNormed * 4 * kConsumerThreads;

  // Of those of `m`, from the one `begin` of them on.
  __device__ __forceinline__ RowBlock(const PackedGemmMatrix& m, int begin)
      : begin_(begin),
        first_(m.first_feature + begin + static_cast<int>(threadIdx.x) * 4),
        end_(m.first_feature + m.features) {}

  // Where the channels go: weights' data, which may be read before the row is there.
  __device__ __forceinline__ void load_offsets(const PackedGemmMatrix& m) {
    if (m.is_identity) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (feature(i) >= end_) break;
      offsets_[i] = *reinterpret_cast<const uint2*>(m.fragment_offset_of_feature + feature(i));
    }
  }
  // The same of what they are multiplied by.
  __device__ __forceinline__ void load_weights(const InputNorm& norm) {
    if (norm.weight == nullptr) return;
#pragma unroll
    for (int i = 0; i < kNormed; ++i) {
      if (feature(i) >= end_) break;
      weights_[i] = __ldg(reinterpret_cast<const float4*>(norm.weight + feature(i)));
    }
  }
  // `stride`: elements to the next row. `rest`: what of the only row lies beside it, or null.
  __device__ __forceinline__ void load(const float* rows, std::int64_t stride,
                                       const float* partial) {
#pragma unroll
    for (int n = 0; n < Tokens; ++n)
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const float* at = rows + n * stride + feature(i);
        values_[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (feature(i) < end_) values_[n][i] = *reinterpret_cast<const float4*>(at);
      }
    if (Tokens == 1 && partial != nullptr) load_partials(partial, 0);
  }
  // The rest that load() was told of; what there was no room for is loaded now. `multiplies`: the
  // row by it.
  __device__ __forceinline__ void add(const float* partial, bool multiplies) {
    if constexpr (Tokens == 1) {
      if (partial == nullptr) return;
      constexpr bool kMayMultiply = kForm != GemvVariant::kPlain;
      constexpr int kMost = kMayMultiply ? kHeld : kNormed;
#pragma unroll
      for (int first = 0; first < kMost; first += kPartialsAtOnce) {
        if (first > 0) {
          if (feature(first) >= end_) break;
          load_partials(partial, first);
        }
#pragma unroll
        for (int i = 0; i < kPartialsAtOnce && first + i < kMost; ++i) {
          float4& v = values_[0][first + i];
          const float4& r = partials_[i];
          if (kMayMultiply && multiplies) {
            v.x *= r.x, v.y *= r.y, v.z *= r.z, v.w *= r.w;
          } else {
            v.x += r.x, v.y += r.y, v.z += r.z, v.w += r.w;
          }
        }
      }
    }
  }
  __device__ __forceinline__ void normalise(const InputNorm& norm, float (&squares)[Tokens]) {
    if (!norm.present) return;
#pragma unroll
    for (int n = 0; n < Tokens; ++n)
#pragma unroll
      for (int i = 0; i < kNormed; ++i) {
        if (feature(i) >= end_) break;
        float4& v = values_[n][i];
        squares[n] += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        if (norm.weight == nullptr) continue;
        v.x *= weights_[i].x + norm.unit_offset;
        v.y *= weights_[i].y + norm.unit_offset;
        v.z *= weights_[i].z + norm.unit_offset;
        v.w *= weights_[i].w + norm.unit_offset;
      }
  }
  // `slots`: of the first row; `stride`: bytes to the next one's.
  __device__ __forceinline__ void store(bool is_identity, std::byte* elements, int stride) const {
#pragma unroll
    for (int n = 0; n < Tokens; ++n) {
      const std::uint32_t to = shared_address(elements + n * stride);
      if (is_identity) {
        store_in_order(to, values_[n]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (feature(i) >= end_) break;
        store_element(to, offsets_[i].x & 0xffffu, values_[n][i].x);
        store_element(to, offsets_[i].x >> 16, values_[n][i].y);
        store_element(to, offsets_[i].y & 0xffffu, values_[n][i].z);
        store_element(to, offsets_[i].y >> 16, values_[n][i].w);
      }
    }
  }

 private:
  static constexpr int kPartialsAtOnce = 4;  // as registers allow while the row is on its way

  // Pairs of slots lie together. Every other unit's threads begin with their second pair, so that
  // half a warp is in all the banks.
  __device__ __forceinline__ void store_in_order(std::uint32_t to,
                                                 const float4 (&values)[kHeld]) const {
    constexpr std::uint32_t kNextPair = 8 * sizeof(float);  // see fragment_offset
    const auto k = static_cast<int>(threadIdx.x) * 4;
    const bool odd = k / kKStepSize % 2 != 0;
    const std::uint32_t at =
        to + static_cast<std::uint32_t>(begin_ + fragment_offset(k)) * sizeof(float);
    const std::uint32_t first = at + (odd ? kNextPair : 0);
    const std::uint32_t second = at + (odd ? 0 : kNextPair);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (feature(i) >= end_) break;
      const float4& v = values[i];
      constexpr std::uint32_t kStep = 4 * kConsumerThreads * sizeof(float);
      store_pair(first + i * kStep, odd ? v.z : v.x, odd ? v.w : v.y);
      store_pair(second + i * kStep, odd ? v.x : v.z, odd ? v.y : v.w);
    }
  }
  __device__ __forceinline__ static void store_pair(std::uint32_t to, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
  }
  // The address in one instruction: the compiler takes two, to add up what it knows first.
  __device__ __forceinline__ static void store_element(std::uint32_t to, std::uint32_t k,
                                                       float value) {
    asm volatile(
        "{\n.reg .u32 at;\nmad.lo.u32 at, %1, 4, %0;\nst.shared.f32 [at], %2;\n}" ::"r"(to), "r"(k),
        "f"(value)
        : "memory");
  }
  __device__ __forceinline__ int feature(int i) const { return first_ + i * 4 * kConsumerThreads; }
  __device__ __forceinline__ void load_partials(const float* partial, int first) {
#pragma unroll
    for (int i = 0; i < kPartialsAtOnce; ++i) {
      const int at = feature(first + i);
      partials_[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at < end_) partials_[i] = *reinterpret_cast<const float4*>(partial + at);
    }
  }
  float4 values_[Tokens][kHeld];
  float4 partials_[kPartialsAtOnce];
  float4 weights_[kNormed];
  uint2 offsets_[kHeld];
  int begin_;
  int first_;
  int end_;
};

static_assert(RowBlock<1, GemvVariant::kPlain>::kFeatures == kPlainRowFeatures &&
              RowBlock<1, GemvVariant::kPlain>::kNormedFeatures == kPlainNormedFeatures);

// What results are to be multiplied by, in shared memory.
template <int Tokens>
struct RowFactors {
  float of[Tokens];
};

// Σx² of each thread's channels of a token, in shared memory that nobody else needs yet: a warp
// adds them up while others still make digits. Sums of warps, found before that, were on
// everybody's way.
using ThreadSquares = float[kConsumerThreads];

// What a norm multiplies a token by; by one warp.
__device__ __forceinline__ float norm_factor(const InputNorm& norm, const ThreadSquares& squares) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) sum += squares[w * 32 + lane_index()];
  return rsqrtf(warp_sum(sum) * norm.cta_range + norm.eps);
}

// A run of chunks on its way to digits, which share one power of two: a lane has four slots.
class LimbSplitter {
 public:
  // `run`: a LimbRun. `input`, `worth`: of unit 0.
  __device__ __forceinline__ LimbSplitter(std::byte* input, std::byte* limb_scale,
                                          std::uint32_t run)
      : k_step_(input + (run >> 16) * kInputKStepBytes + lane_index() / 8 * kInputKStepBytes),
        limb_scale_at_(limb_scale + (run >> 16) * LimbScale::kBytes +
                       lane_index() / 8 * LimbScale::kBytes),
        k_block_steps_(static_cast<int>(run >> 8 & 0xffu)),
        is_one_k_block_((run & 0xffu) == (run >> 8 & 0xffu)),
        live_(lane_index() / 8 < static_cast<int>(run & 0xffu)) {
    if (!live_) return;
    const float4 elements = reinterpret_cast<const float4*>(k_step_)[lane_index() % 8];
    x_[0] = elements.x, x_[1] = elements.z, x_[2] = elements.y, x_[3] = elements.w;
  }
  // All lanes of the warp take part.
  __device__ __forceinline__ void find_limb_scale() {
    std::uint32_t most = 0;  // as bits: NaN is larger than all
#pragma unroll
    for (int j = 0; j < 4; ++j) most = max(most, __float_as_uint(fabsf(x_[j])));
    most = warp_max(most);
    const std::uint32_t exponent = max(most, 20u << 23) & 0x7f800000u;  // factor stays finite
    factor_ = __uint_as_float(((253u + kLimbBits) << 23) - exponent);
    limb_scale_ = __uint_as_float(exponent - ((kLimbBits - 1u) << 23));
    if (most >= 0x7f800000u) limb_scale_ = __uint_as_float(0x7fffffffu);
    std::uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += number(j, factor_, 0.0f) - __float_as_uint(kWhole);
    find_sum(static_cast<int>(sum));
  }
  // Where all lanes' slots have been read.
  __device__ __forceinline__ void store() const {
    if (!live_) return;
    const bool upper = lane_index() % 2 != 0;  // the slots s = 1
    std::byte* words = k_step_ + (upper ? 2 * kColumnBytes : 0) + lane_index() % 8 / 2 * 8;
    const float lower_factor = upper ? -factor_ : factor_;
    uint2 high = {bytes(1, factor_, 128.0f), bytes(1, lower_factor, 128.0f)};
    uint2 low = {bytes(0, factor_, 0.0f), bytes(0, lower_factor, 0.0f)};
    if (!upper) high.x = low.x = 0;
    *reinterpret_cast<uint2*>(words) = high;
    *reinterpret_cast<uint2*>(words + kColumnBytes) = low;
    if (begins_) {
      const LimbScale all{{limb_scale_, limb_scale_ * 0.0625f},
                          {limb_scale_ * static_cast<float>(sum_), 0.0f}};
      all.store(limb_scale_at_);
    }
  }

 private:
  // Of the chunk that begins with this lane's slots, if one does; `sum`: of the lane's numbers.
  __device__ __forceinline__ void find_sum(int sum) {
    const int of_all = warp_sum(sum);
    if (is_one_k_block_) {
      sum_ = of_all;
      begins_ = lane_index() == 0;
    } else if (k_block_steps_ == 2) {
      // Of one half, and what is left.
      const int of_first = warp_sum(lane_index() < 16 ? sum : 0);
      sum_ = lane_index() < 16 ? of_first : of_all - of_first;
      begins_ = lane_index() % 16 == 0;
    } else {
#pragma unroll
      for (int distance = 1; distance < 8; distance *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
      }
      sum_ = sum;
      begins_ = lane_index() % 8 == 0;
    }
  }
  static constexpr float kWhole = 12582912.0f;  // 1.5 · 2^23: has no bits behind the point
  // x · factor to the nearest number, and `more`, as the lower bits of that float.
  __device__ __forceinline__ std::uint32_t number(int j, float factor, float more) const {
    return __float_as_uint(fmaf(x_[j], factor, kWhole + more));
  }
  // Byte `which` of the four numbers.
  __device__ __forceinline__ std::uint32_t bytes(unsigned which, float factor, float more) const {
    const unsigned pair = which | (which + 4) << 4;
    const std::uint32_t lower = __byte_perm(number(0, factor, more), number(1, factor, more), pair);
    const std::uint32_t upper = __byte_perm(number(2, factor, more), number(3, factor, more), pair);
    return __byte_perm(lower, upper, 0x5410);
  }
  std::byte* k_step_;         // of this lane's slots
  std::byte* limb_scale_at_;  // of a chunk that begins with it
  float x_[4] = {};           // in the order of bytes: slot 8r + 2t + e at 2e + r
  float factor_ = 0.0f;
  float limb_scale_ = 0.0f;
  int sum_ = 0;
  int k_block_steps_;
  bool is_one_k_block_;
  bool live_;
  bool begins_ = false;
};

// A warp's runs of a strip, a lane each; loaded before they are needed.
class WarpLimbRuns {
 public:
  static constexpr int kAtOnce = 32 * kConsumerWarps;  // of all warps
  static_assert(kAtOnce == kPlainLimbRuns);

  // The runs from `base` on.
  __device__ __forceinline__ WarpLimbRuns(const CodeMatrixView& m, int base) {
    const int mine = base + warp_index() + lane_index() * kConsumerWarps;
    if (mine < m.run_count) run_ = __ldg(reinterpret_cast<const std::uint32_t*>(m.runs) + mine);
  }
  // They become digits; `input`, `worth`: of the token. Code that runs a few times: the shorter,
  // the sooner it is there.
  __device__ __forceinline__ void make_limbs(std::byte* input, std::byte* limb_scale) const {
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t next = __shfl_sync(kAllLanes, run_, i);
      if (next == 0) return;
      LimbSplitter run(input, limb_scale, next);
      run.find_limb_scale();
      __syncwarp();
      run.store();
    }
  }

 private:
  std::uint32_t run_ = 0;  // a LimbRun; 0, which none is, behind the last
};

// The matrices that a share reads its rows for, and where the digits go: those of equal gathers are
// the same.
struct GemvInput {
  int first_matrix = 0;
  int end_matrix = 0;
  bool padded = false;         // a matrix of the launch has slots without a channel
  std::byte* limbs = nullptr;  // [tokens][gathers][bytes], from gather 0 on
  int bytes = 0;
  int limb_scale_at = 0;  // within a gather's bytes
  int token_stride = 0;   // bytes of as many gathers as a share has

  // There is room for the gathers of a share alone: its lowest one comes first.
  __device__ __forceinline__ void place_lowest_first(const PackedGemmArgs& args) {
    int lowest = args.matrices[first_matrix].input_layout;
    for (int i = first_matrix + 1; i < end_matrix; ++i) {
      lowest = min(lowest, args.matrices[i].input_layout);
    }
    limbs -= lowest * bytes;
  }
  __device__ __forceinline__ std::byte* of(const PackedGemmMatrix& m) const {
    return limbs + m.input_layout * bytes;
  }
  // f(matrix) for the first of each gather.
  template <class F>
  __device__ __forceinline__ void for_each(const PackedGemmArgs& args, const F& f) const {
    unsigned made = 0;
#pragma unroll 1
    for (int i = first_matrix; i < end_matrix; ++i) {
      const unsigned input_layout = 1u << args.matrices[i].input_layout;
      if ((made & input_layout) != 0) continue;
      made |= input_layout;
      f(args.matrices[i]);
    }
  }
};

// Slots without a channel are zero, where any matrix has such.
template <int Tokens>
__device__ __forceinline__ void clear_padding(const PackedGemmArgs& args, const GemvInput& to) {
  to.for_each(args, [&](const PackedGemmMatrix& m) {
    if (!m.padded) return;
#pragma unroll
    for (int n = 0; n < Tokens; ++n) {
      auto* words = reinterpret_cast<uint4*>(to.of(m) + n * to.token_stride);
      for (int i = static_cast<int>(threadIdx.x); i < m.view.k_steps * kInputKStepBytes / 16;
           i += kConsumerThreads) {
        words[i] = make_uint4(0, 0, 0, 0);
      }
    }
  });
  consumer_sync();
}

// The rows of a product into the slots of the matrices of a share. It waits for the kernel before;
// what does not depend on it is asked for ahead. `meanwhile`: what is to be asked for while the
// rows are on their way. Of plain products they are one block.
template <int Tokens, GemvVariant kForm, class Meanwhile>
__device__ __forceinline__ void read_rows(const PackedGemmArgs& args, const GemvInput& to,
                                          float (&squares)[Tokens], const Meanwhile& meanwhile) {
  const PackedGemmMatrix& first = args.matrices[to.first_matrix];
  using Block = RowBlock<Tokens, kForm>;
  Block row(first, 0);
  row.load_offsets(first);
  row.load_weights(args.norm);
  pdl_wait();
#pragma unroll 1
  for (int at = 0;;) {
    row.load(args.x, args.x_stride, args.x_partial);
    if (at == 0) meanwhile();
    row.add(args.x_partial, args.x_partial_multiplies);
    row.normalise(args.norm, squares);
    if constexpr (is_plain(kForm)) {
      row.store(first.is_identity, to.limbs, to.token_stride);
    } else {
      to.for_each(args, [&](const PackedGemmMatrix& m) {
        if (&m != &first) row.load_offsets(m);
        row.store(m.is_identity, to.of(m), to.token_stride);
      });
    }
    at += Block::kFeatures;
    if (is_plain(kForm) || at >= first.features) break;
    row = Block(first, at);
    row.load_offsets(first);
    row.load_weights(args.norm);
  }
}

// The rows of a product, as digits for the matrices of a share, complete for all multiplying
// threads. It waits for the kernel before, and tells the ring when the rows have been read.
// `meanwhile`: what is done while they are on their way; its copies are awaited. `room`: anything
// afterwards.
template <int Tokens, GemvVariant kForm, class Meanwhile>
__device__ __forceinline__ void make_gemv_input(const PackedGemmArgs& args, const GemvInput& to,
                                                GemvPipeline& ring, RowFactors<Tokens>& factors,
                                                ThreadSquares (&room)[Tokens],
                                                const Meanwhile& meanwhile) {
  if (!is_plain(kForm) && to.padded) clear_padding<Tokens>(args, to);
  const PackedGemmMatrix& first = args.matrices[to.first_matrix];
  const WarpLimbRuns first_runs(first.view, 0);
  float squares[Tokens] = {};
  read_rows<Tokens, kForm>(args, to, squares, meanwhile);
#pragma unroll
  for (int n = 0; n < Tokens; ++n) room[n][threadIdx.x] = squares[n];
  commit_copies();
  ring.meet();
  if constexpr (is_plain(kForm)) {
    first_runs.make_limbs(to.limbs, to.limbs + to.limb_scale_at);
  } else {
    to.for_each(args, [&](const PackedGemmMatrix& m) {
      WarpLimbRuns runs = &m == &first ? first_runs : WarpLimbRuns(m.view, 0);
#pragma unroll 1
      for (int next = WarpLimbRuns::kAtOnce;; next += WarpLimbRuns::kAtOnce) {
#pragma unroll 1
        for (int n = 0; n < Tokens; ++n) {
          std::byte* input = to.of(m) + n * to.token_stride;
          runs.make_limbs(input, input + to.limb_scale_at);
        }
        if (next >= m.view.run_count) break;
        runs = WarpLimbRuns(m.view, next);
      }
    });
  }
  wait_copies<0>();
  // The last warp has the fewest digits to make.
  if (threadIdx.x >= kConsumerThreads - 32) {
#pragma unroll
    for (int n = 0; n < Tokens; ++n) {
      const float factor = args.norm.present ? norm_factor(args.norm, room[n]) : 1.0f;
      if (lane_index() == 0) factors.of[n] = factor;
    }
  }
  consumer_sync();
}

}  // namespace bl::cuda
