#pragma once
// Prologue of gemv_i8: every CTA packs the activations of one to four tokens for itself, permuted
// into the order of k, then split into int8 limbs in place (limb_mma.cuh). That costs less than a
// launch in front. The factor 1/rms of a norm is applied to the results.

#include "backend/cuda/device/async_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_pipeline.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"

namespace bl::cuda {

// Variants of the kernel (is_plain_gemv): any launch; plain ones; and plain ones that may also
// write SiLU(gate) beside up, or read a row times another one (the deferred gate multiplication).
enum class GemvVariant : std::uint8_t { kAny, kPlain, kPlainDeferredMul };
constexpr bool is_plain(GemvVariant variant) { return variant != GemvVariant::kAny; }

// F32 rows in device memory; without rows, `first` is null.
struct GemvRows {
  const float* first = nullptr;
  std::int64_t stride = 0;  // elements to the next row
  int count = 0;
};

// A thread's part of the rows: kHeld · 4 · kConsumerThreads features of each token at a time.
template <int Tokens, GemvVariant kVariant>
class RowBlock {
 public:
  static constexpr int kHeld = Tokens == 1 ? 8 : 3;
  // Rows with a norm or partial sums are shorter in plain launches (kPlainNormedFeatures).
  static constexpr int kNormed = is_plain(kVariant) ? 5 : kHeld;
  static constexpr int kFeatures = kHeld * 4 * kConsumerThreads;
  static constexpr int kNormedFeatures = kNormed * 4 * kConsumerThreads;

  // Covers the features of `m` from the `begin`th of its features on.
  __device__ __forceinline__ RowBlock(const PackedGemmMatrix& m, int begin)
      : begin_(begin),
        first_(m.first_feature + begin + static_cast<int>(threadIdx.x) * 4),
        end_(m.first_feature + m.features) {}

  // Loads where the features go. These are weights, so this may run before the row exists.
  __device__ __forceinline__ void load_offsets(const PackedGemmMatrix& m) {
    if (m.is_identity) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (feature(i) >= end_) break;
      offsets_[i] = *reinterpret_cast<const uint2*>(m.fragment_offset_of_feature + feature(i));
    }
  }
  // Loads the weights of the norm, which may run before the row exists too.
  __device__ __forceinline__ void load_weights(const InputNorm& norm) {
    if (norm.weight == nullptr) return;
#pragma unroll
    for (int i = 0; i < kNormed; ++i) {
      if (feature(i) >= end_) break;
      weights_[i] = __ldg(reinterpret_cast<const float4*>(norm.weight + feature(i)));
    }
  }
  // `partial`: partial sums or the factor of the only row, or null.
  __device__ __forceinline__ void load(const GemvRows& rows, const float* partial) {
#pragma unroll
    for (int n = 0; n < Tokens; ++n)
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const float* at = rows.first + n * rows.stride + feature(i);
        values_[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (feature(i) < end_ && (Tokens == 1 || n < rows.count)) {
          values_[n][i] = *reinterpret_cast<const float4*>(at);
        }
      }
    if (Tokens == 1 && partial != nullptr) load_partials(partial, 0);
  }
  // Several tokens: adds rows of partial sums, two tokens' loads in flight at a time.
  __device__ __forceinline__ void add_rows(const GemvRows& partials) {
    if (partials.first == nullptr) return;
#pragma unroll
    for (int first = 0; first < Tokens; first += 2) {
      float4 more[2][kHeld];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          const float* at = partials.first + (first + n) * partials.stride + feature(i);
          more[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (feature(i) < end_ && first + n < partials.count) {
            more[n][i] = *reinterpret_cast<const float4*>(at);
          }
        }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          float4& v = values_[first + n][i];
          const float4& r = more[n][i];
          v.x += r.x, v.y += r.y, v.z += r.z, v.w += r.w;
        }
    }
  }
  // Stores the row of token `token` as it is, in the order of features.
  __device__ __forceinline__ void store_row(int token, float* row) const {
#pragma unroll
    for (int n = 0; n < Tokens; ++n)
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (n != token || feature(i) >= end_) continue;
        *reinterpret_cast<float4*>(row + feature(i)) = values_[n][i];
      }
  }
  // Adds the row that load() was given, or, if `multiplies`, multiplies by it. Values for which
  // there were no registers are loaded only here.
  __device__ __forceinline__ void add(const float* partial, bool multiplies) {
    if constexpr (Tokens == 1) {
      if (partial == nullptr) return;
      constexpr bool kMayMultiply = kVariant != GemvVariant::kPlain;
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
  // `elements`: the first row in the order of k; `stride`: bytes to the next of `rows` rows.
  __device__ __forceinline__ void store(bool is_identity, std::byte* elements, int stride,
                                        int rows) const {
#pragma unroll
    for (int n = 0; n < Tokens; ++n) {
      if (Tokens > 1 && n >= rows) break;
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
  // As many as registers allow while the row is being loaded.
  static constexpr int kPartialsAtOnce = 4;

  // Pairs of k lie together. Threads of every other k_step store their second pair first, so that
  // half a warp covers all banks.
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
  // Computes the address in one instruction; the compiler uses two, because it adds constants
  // first.
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

// What the results of each token are multiplied by, in shared memory.
template <int Tokens>
struct RowFactors {
  float of[Tokens];
};

// Σx² over each thread's features of one token, in shared memory that is not used yet: one warp
// adds them up while the others still make limbs. Adding them earlier, warp by warp, delayed all
// warps.
using ThreadSquares = float[kConsumerThreads];

// Returns 1/rms of a token; called by one warp.
__device__ __forceinline__ float norm_factor(const InputNorm& norm, const ThreadSquares& squares) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) sum += squares[w * 32 + lane_index()];
  return rsqrtf(warp_sum(sum) * norm.reciprocal_in + norm.eps);
}

// Turns a run of k_blocks, which share one power of two, into limbs: each lane has four k.
class LimbSplitter {
 public:
  // `run`: a LimbRun. `input`, `limb_scale`: addresses of k_step 0.
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
  // Finds the scale and the sums of numbers. All lanes of the warp take part.
  __device__ __forceinline__ void find_limb_scale() {
    std::uint32_t most = 0;  // compared as bits: NaN is larger than all
#pragma unroll
    for (int j = 0; j < 4; ++j) most = max(most, __float_as_uint(fabsf(x_[j])));
    most = warp_max(most);
    const LimbFactor of(most);
    factor_ = of.factor;
    limb_scale_ = of.scale;
    std::uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum += limb_number(x_[j], factor_, 0.0f) - __float_as_uint(kWholeNumbers);
    find_sum(static_cast<int>(sum));
  }
  // Call this when all lanes have read their elements, which the limbs overwrite. kAlone: the token
  // is the only one.
  template <bool kAlone>
  __device__ __forceinline__ void store() const {
    if (!live_) return;
    if constexpr (!kAlone) {
      store_columns();
      return;
    }
    const bool upper = lane_index() % 2 != 0;  // its k are those with s = 1
    std::byte* words = k_step_ + (upper ? 2 * kColumnBytes : 0) + lane_index() % 8 / 2 * 8;
    const float lower_factor = upper ? -factor_ : factor_;
    uint2 high = {bytes(1, factor_, 128.0f), bytes(1, lower_factor, 128.0f)};
    uint2 low = {bytes(0, factor_, 0.0f), bytes(0, lower_factor, 0.0f)};
    if (!upper) high.x = low.x = 0;
    *reinterpret_cast<uint2*>(words) = high;
    *reinterpret_cast<uint2*>(words + kColumnBytes) = low;
    store_scale();
  }

 private:
  // Stores the two columns of one of several tokens.
  __device__ __forceinline__ void store_columns() const {
    const bool upper = lane_index() % 2 != 0;
    auto* words = reinterpret_cast<std::uint32_t*>(k_step_) + lane_index() % 8 / 2 * 2;
    words[upper ? 0 : 1] = bytes(1, factor_, 128.0f);
    words[kColumnBytes / 4 + (upper ? 0 : 1)] = bytes(0, factor_, 0.0f);
    store_scale();
  }
  __device__ __forceinline__ void store_scale() const {
    if (begins_) {
      const LimbScale all{{limb_scale_, limb_scale_ * 0.0625f},
                          {limb_scale_ * static_cast<float>(sum_), 0.0f}};
      all.store(limb_scale_at_);
    }
  }
  // Finds the sum of the k_block that begins with this lane's k, if one does; `sum`: the lane's
  // own.
  __device__ __forceinline__ void find_sum(int sum) {
    const int of_all = warp_sum(sum);
    if (is_one_k_block_) {
      sum_ = of_all;
      begins_ = lane_index() == 0;
    } else if (k_block_steps_ == 2) {
      // Sums the first half; the second is the difference.
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
  // Returns byte `which` of the four numbers.
  __device__ __forceinline__ std::uint32_t bytes(unsigned which, float factor, float more) const {
    const unsigned pair = which | (which + 4) << 4;
    const std::uint32_t lower =
        __byte_perm(limb_number(x_[0], factor, more), limb_number(x_[1], factor, more), pair);
    const std::uint32_t upper =
        __byte_perm(limb_number(x_[2], factor, more), limb_number(x_[3], factor, more), pair);
    return __byte_perm(lower, upper, 0x5410);
  }
  std::byte* k_step_;         // with this lane's k
  std::byte* limb_scale_at_;  // of a k_block that begins with this k_step
  float x_[4] = {};           // in the order of bytes: k = 8r + 2t + e at 2e + r
  float factor_ = 0.0f;
  float limb_scale_ = 0.0f;
  int sum_ = 0;
  int k_block_steps_;
  bool is_one_k_block_;
  bool live_;
  bool begins_ = false;
};

// A warp's limb runs of a matrix, one a lane; loaded before they are needed.
class WarpLimbRuns {
 public:
  static constexpr int kAtOnce = 32 * kConsumerWarps;  // of all warps
  static_assert(kAtOnce == kPlainLimbRuns);

  // Loads the runs from `base` on.
  __device__ __forceinline__ WarpLimbRuns(const CodeMatrixView& m, int base) {
    const int mine = base + warp_index() + lane_index() * kConsumerWarps;
    if (mine < m.run_count) run_ = __ldg(reinterpret_cast<const std::uint32_t*>(m.runs) + mine);
  }
  // Turns the runs into limbs of one token at `input`, with their scales at `limb_scale`. The loop
  // runs only a few times, so it is not unrolled: short code arrives sooner from the instruction
  // cache.
  __device__ __forceinline__ void make_limbs(std::byte* input, std::byte* limb_scale) const {
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t next = __shfl_sync(kAllLanes, run_, i);
      if (next == 0) return;
      LimbSplitter run(input, limb_scale, next);
      run.find_limb_scale();
      __syncwarp();
      run.store<true>();
    }
  }
  // Turns the runs into limbs of `tokens` tokens, `stride` bytes apart: two at a time, because each
  // is a chain of dependent instructions. The last of an odd number is made twice.
  __device__ __forceinline__ void make_limbs_of(std::byte* input, int limb_scale_at, int stride,
                                                int tokens) const {
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t next = __shfl_sync(kAllLanes, run_, i);
      if (next == 0) return;
#pragma unroll 1
      for (int n = 0; n < tokens; n += 2) {
        std::byte* first = input + n * stride;
        std::byte* second = input + min(n + 1, tokens - 1) * stride;
        LimbSplitter run(first, first + limb_scale_at, next);
        LimbSplitter other(second, second + limb_scale_at, next);
        run.find_limb_scale();
        other.find_limb_scale();
        __syncwarp();
        run.store<false>();
        other.store<false>();
      }
    }
  }

 private:
  std::uint32_t run_ = 0;  // a LimbRun; 0, which no run is, behind the last
};

// The matrices of a CTA's range, and where their limbs go; matrices with one input layout share
// them.
struct GemvInput {
  int first_matrix = 0;
  int end_matrix = 0;
  bool padded = false;         // a matrix of the launch has k without a feature
  std::byte* limbs = nullptr;  // [tokens][input layouts][bytes], from layout 0 on
  int bytes = 0;
  int limb_scale_at = 0;  // in the bytes of an input layout
  int token_stride = 0;   // bytes of all input layouts of a range

  // Shared memory holds only the input layouts of this range: its lowest one comes first.
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
  // Calls f(matrix) for the first matrix of each input layout.
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

// Zeroes k without a feature, if any matrix has such k.
__device__ __forceinline__ void clear_padding(const PackedGemmArgs& args, const GemvInput& to) {
  to.for_each(args, [&](const PackedGemmMatrix& m) {
    if (!m.padded) return;
    for (int n = 0; n < args.tokens; ++n) {
      auto* words = reinterpret_cast<uint4*>(to.of(m) + n * to.token_stride);
      for (int i = static_cast<int>(threadIdx.x); i < m.view.k_steps * kInputKStepBytes / 16;
           i += kConsumerThreads) {
        words[i] = make_uint4(0, 0, 0, 0);
      }
    }
  });
  consumer_sync();
}

// Reads the rows and stores them in the order of k for the matrices of a range. Waits for the
// launch in front, after loads that do not depend on it. `meanwhile` runs while the rows are being
// loaded. In plain launches the rows are a single block.
template <int Tokens, GemvVariant kVariant, class Meanwhile>
__device__ __forceinline__ void read_rows(const PackedGemmArgs& args, const GemvInput& to,
                                          float (&squares)[Tokens], const Meanwhile& meanwhile) {
  const PackedGemmMatrix& first = args.matrices[to.first_matrix];
  using Block = RowBlock<Tokens, kVariant>;
  Block row(first, 0);
  row.load_offsets(first);
  row.load_weights(args.norm);
  pdl_wait();
#pragma unroll 1
  for (int at = 0;;) {
    row.load({args.x, args.x_stride, args.tokens}, args.x_partial);
    if (at == 0) meanwhile();
    if constexpr (Tokens == 1) {
      row.add(args.x_partial, args.x_partial_multiplies);
    } else {
      row.add_rows({args.x_partial, args.in, args.tokens});
      const auto token = static_cast<int>(blockIdx.x);
      if (args.x_sum != nullptr && token < args.tokens) {
        row.store_row(token, args.x_sum + token * args.x_sum_stride);
      }
    }
    row.normalise(args.norm, squares);
    if constexpr (is_plain(kVariant)) {
      row.store(first.is_identity, to.limbs, to.token_stride, args.tokens);
    } else {
      to.for_each(args, [&](const PackedGemmMatrix& m) {
        if (&m != &first) row.load_offsets(m);
        row.store(m.is_identity, to.of(m), to.token_stride, args.tokens);
      });
    }
    at += Block::kFeatures;
    if (is_plain(kVariant) || at >= first.features) break;
    row = Block(first, at);
    row.load_offsets(first);
    row.load_weights(args.norm);
  }
}

// Reads the rows and turns them into limbs, complete for all consumer threads. Waits for the launch
// in front, and tells the pipeline when the rows have been read. `meanwhile` runs while they are
// being loaded; its copies are awaited here. `room` holds anything afterwards.
template <int Tokens, GemvVariant kVariant, class Meanwhile>
__device__ __forceinline__ void make_gemv_input(const PackedGemmArgs& args, const GemvInput& to,
                                                GemvPipeline& pipeline, RowFactors<Tokens>& factors,
                                                ThreadSquares (&room)[Tokens],
                                                const Meanwhile& meanwhile) {
  if (!is_plain(kVariant) && to.padded) clear_padding(args, to);
  const PackedGemmMatrix& first = args.matrices[to.first_matrix];
  const WarpLimbRuns first_runs(first.view, 0);
  float squares[Tokens] = {};
  read_rows<Tokens, kVariant>(args, to, squares, meanwhile);
#pragma unroll
  for (int n = 0; n < Tokens; ++n) room[n][threadIdx.x] = squares[n];
  commit_copies();
  pipeline.sync_row_read();
  if constexpr (is_plain(kVariant)) {
    first_runs.make_limbs(to.limbs, to.limbs + to.limb_scale_at);
  } else {
    to.for_each(args, [&](const PackedGemmMatrix& m) {
      WarpLimbRuns runs = &m == &first ? first_runs : WarpLimbRuns(m.view, 0);
#pragma unroll 1
      for (int next = WarpLimbRuns::kAtOnce;; next += WarpLimbRuns::kAtOnce) {
        if constexpr (Tokens == 1) {
          runs.make_limbs(to.of(m), to.of(m) + to.limb_scale_at);
        } else {
          runs.make_limbs_of(to.of(m), to.limb_scale_at, to.token_stride, args.tokens);
        }
        if (next >= m.view.run_count) break;
        runs = WarpLimbRuns(m.view, next);
      }
    });
  }
  wait_copies<0>();
  // The last warp has the fewest limbs to make.
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
