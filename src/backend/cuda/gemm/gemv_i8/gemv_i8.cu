#include <algorithm>
#include <iterator>
#include <type_traits>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/gemm/gemv_i8/k_block_pair_mma.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_input.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_pipeline.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kProductThreads + 32;  // the last warp issues the copies
constexpr int kLeastSlots = 2;  // of a ring, for two tokens to be faster so than prepared
// Groups of strips whose sums wait for one barrier.
constexpr int kMaxWaiting = 2;
constexpr int kMostTokens = 2;
// Sums of a warp and group.
template <int Tokens>
constexpr int kPart = kEntryStrips* kStripColumns* Tokens;
// Strips of which a lane has sums: one of each pair (take_strip), or, where there are two tokens,
// all of one of them.
template <int Tokens, int Strips>
constexpr int kOwnStrips = Tokens == 1 ? (Strips + 1) / 2 : Strips;
template <int Tokens>
using LaneTotals = float[kOwnStrips<Tokens, kEntryStrips>][2];

struct Launch {
  TokenRingShape ring;
  // In shared memory, behind Shared and the input: all matrices' chunks, and the ring.
  int tables_at = 0;
  int ring_at = 0;
  int token_stride = 0;     // bytes of one token's input
  bool one_gather = false;  // see has_one_gather
  bool padded = false;      // see is_padded
  TokenPlan plan;
  ProductArgs args;
  ReadAhead ahead;
};

// A matrix has slots without a channel.
bool is_padded(const ProductArgs& args) {
  return std::any_of(args.matrices, args.matrices + args.count,
                     [](const ProductMatrix& m) { return m.padded; });
}

// Products as most models have them, which have kernels of their own: of one token, with one gather
// of a share without padding, rows and runs that are one round of a CTA, a norm with weights, SiLU
// if gated, no biases. Code for all others stands in the way where a step's launches share the
// instruction cache (bench/ladder/exl2_gemv).
bool is_plain(const ProductArgs& args) {
  if (args.tokens > 1 || is_padded(args) || !has_one_gather(args)) return false;
  if (args.norm.present && args.norm.weight == nullptr) return false;
  if (args.gated && !is_plain_silu(args.activation)) return false;
  using Row = RowBlock<1, TokenForm::kPlain>;
  const bool bare = !args.norm.present && (args.x_rest == nullptr || args.rest_multiplies);
  const int most = bare ? Row::kChannels : Row::kNormedChannels;
  const auto usual = [most](const ProductMatrix& m) {
    return m.bias == nullptr && m.view.run_count <= OwnRuns::kAtOnce && m.channels <= most;
  };
  return std::all_of(args.matrices, args.matrices + args.count, usual);
}

// Where a thread's result of a group goes, and what it is added to. In shared memory: registers for
// it were spilled.
struct alignas(16) ResultTarget {
  float* to;  // null: it has none
  float there;
  float rest;
};

// What lies in shared memory before all else.
template <int Tokens>
struct alignas(128) Shared {
  std::uint64_t barriers[kTokenBarriers];
  TokenFactors<Tokens> factors;
  // Of groups that wait, each thread's own.
  ResultTarget targets[kMaxWaiting][kPart<Tokens>];
  int columns[kMaxWaiting][kPart<Tokens>];  // times kMaxMatrices, and the matrix
  float parts[2][kMaxWaiting][kProductWarps][kPart<Tokens>];
  // Of pairs, in front of the input.
  alignas(128) uint4 zeros[kInputZeroBytes / sizeof(uint4)];
};
static_assert(sizeof(Shared<1>) == offsetof(Shared<1>, zeros) + kInputZeroBytes);

struct TokenStrides {
  int token;  // bytes to the second token's digits
  int worth;  // from a gather's digits to their worth
};

// totals += this warp's chunks of the piece, see multiply_piece.
template <class Scales, WidthSet kWidths, int Strips, int Tokens>
__device__ __forceinline__ void multiply_token_piece(const CodeMatrixView& m,
                                                     const PieceView& piece,
                                                     const TokenStrides& strides, int& next,
                                                     LaneTotals<Tokens>& totals) {
  const int lane = lane_index();
  constexpr int kOwn = kOwnStrips<Tokens, Strips>;
  int scales_at[kOwn];
#pragma unroll
  for (int p = 0; p < kOwn; ++p) {
    const int strip = Tokens == 1 ? 2 * p + (takes_second_strip() ? 1 : 0) : p;
    scales_at[p] = min(strip, piece.strips - 1) * piece.scale_stride;
  }
  // Of the token in this lane's column of B, and in its columns of the sums.
  const int column_token = Tokens == 1 ? 0 : lane / 16 * strides.token;
  const int sum_token = Tokens == 1 ? 0 : lane % 4 / 2 * strides.token;
  for (; next < piece.chunks; next += kProductWarps) {
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = piece.chunk_words[next];
    DigitSums<Strips> sums;
    const std::byte* input = piece.fragments + chunk.first_unit * kInputUnitBytes;
    multiply_digits<kWidths>(
        chunk.bits,
        {piece.codes + chunk.offset * unit_bytes(1), piece.code_stride, piece.strips, chunk.units},
        DigitReader(input + column_token, lane), sums);
    const Scales scales(m, chunk, lane, 1.0f);
    const float2 worth = ChunkWorth::of_lane(
        piece.fragments + strides.worth + chunk.first_unit * ChunkWorth::kBytes + sum_token, lane);
    const std::byte* at = piece.scales + chunk.group * Scales::bytes(m.kind);
#pragma unroll
    for (int p = 0; p < kOwn; ++p) {
      const LaneScales own_scales = scales.of(at + scales_at[p], lane);
      if constexpr (Tokens == 1) {
        int own[4];
        take_strip(sums.at[2 * p], sums.at[2 * p + 1 < Strips ? 2 * p + 1 : 2 * p], own);
        add_worth<kWidths>(own_scales, worth, own, totals[p]);
      } else {
        add_worth<kWidths>(own_scales, worth, sums.at[p], totals[p]);
      }
    }
  }
}

// A warp's sums, of both halves of the slots, [strips][tokens][16]; the totals are cleared.
template <int Tokens>
__device__ __forceinline__ void keep_token_sums(LaneTotals<Tokens>& totals, float* part) {
  const int lane = lane_index();
  // A lane's are of the second strip of a pair, or of the second token.
  const int column = lane % 4 / 2 * kStripColumns + lane / 4;
#pragma unroll
  for (int p = 0; p < kOwnStrips<Tokens, kEntryStrips>; ++p)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = totals[p][h] + __shfl_xor_sync(kAllLanes, totals[p][h], 1);
      if (lane % 2 == 0) part[2 * p * kStripColumns + 8 * h + column] = sum;
      totals[p][h] = 0.0f;
    }
}

template <class Scales, WidthSet kWidths, int Tokens, TokenForm kForm, bool kPairs>
class TokenMultiplier {
 public:
  // What it knows of a lane.
  struct NoLane {};
  using Lane = std::conditional_t<kPairs, PairLane, NoLane>;

  __device__ __forceinline__ TokenMultiplier(Shared<Tokens>& shared, TokenRing& ring,
                                             const Lane& lane)
      : shared_(shared), ring_(ring), lane_(lane) {}

  // One share, whose input is ready.
  __device__ __forceinline__ void run(const ProductArgs& args, const OwnInput& input,
                                      const std::byte* tables) {
    int next = warp_index();
    int waiting = 0;
    while (true) {
      const std::uint32_t entry = ring_.wait();
      const int chunks = static_cast<int>(entry & 0xffu);
      const int flags = static_cast<int>(entry >> 16);
      if (next < chunks || flags != 0) {
        multiply(args, input, tables, next, waiting);
      }
      next -= chunks;
      if ((flags & kEndsStrips) == 0) {
        ring_.release();
        continue;
      }
      ring_.release();
      float* part = shared_.parts[half_][waiting][warp_index()];
      if constexpr (kPairs) {
        keep_pair_sums(totals_, part);
      } else {
        keep_token_sums<Tokens>(totals_, part);
      }
      ++waiting;
      if (waiting < kMaxWaiting && (flags & kEndsShare) == 0) continue;
      product_sync();
      for (int i = 0; i < waiting; ++i) store(args, i);
      if ((flags & kEndsShare) != 0) return;
      // Then the other half: who writes here again has passed the next barrier, behind these reads.
      half_ ^= 1;
      waiting = 0;
    }
  }

 private:
  // This warp's chunks of the entry; `next` goes past its chunks.
  __device__ __forceinline__ void multiply(const ProductArgs& args, const OwnInput& input,
                                           const std::byte* tables, int& next, int waiting) {
    PieceView piece;
    ring_.view(input.digits, tables, piece);
    const CodeMatrixView& m = args.matrices[piece.matrix].view;
    if ((piece.flags & kEndsStrips) != 0) find_target(args, piece.matrix, waiting);
    const auto multiply_strips = [&]<int kStrips>(std::integral_constant<int, kStrips>) {
      if constexpr (kPairs) {
        multiply_paired_piece<kWidths, kStrips>(lane_, piece, input.worth_at, next, totals_);
      } else {
        const TokenStrides strides{input.token_stride, input.worth_at};
        multiply_token_piece<Scales, kWidths, kStrips, Tokens>(m, piece, strides, next, totals_);
      }
    };
    if (piece.strips <= 2) {
      multiply_strips(std::integral_constant<int, 2>{});
    } else if (piece.strips == 3) {
      multiply_strips(std::integral_constant<int, 3>{});
    } else {
      multiply_strips(std::integral_constant<int, kEntryStrips>{});
    }
  }
  // As the group's last entry begins, so that nothing but sums is missing behind the last barrier.
  // What results are added to comes by itself meanwhile.
  __device__ __forceinline__ void find_target(const ProductArgs& args, int matrix, int waiting) {
    const PieceStrips strips = ring_.strips();
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= kPart<Tokens>) return;
    ResultTarget& target = shared_.targets[waiting][e];
    const ResultPlace place = place_of(matrix, strips, e);
    const bool has_one = e < strips.count * kStripColumns * Tokens;
    float* to = has_one ? result_at<Tokens == 1>(place, args) : nullptr;
    target.to = to;
    shared_.columns[waiting][e] = place.column * kMaxMatrices + matrix;
    if (!args.accumulate || to == nullptr) return;
    const ProductMatrix& m = args.matrices[matrix];
    fetch(target.there, to, !m.fresh);
    fetch(target.rest, m.rest + place.column, m.rest != nullptr && !m.fresh);
    commit_copies();
  }
  // *from, if there is something, else 0; by wait_copies().
  __device__ __forceinline__ static void fetch(float& to, const float* from, bool present) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    copy_or_clear<4>(shared_address(&to), from, present);
#else
    to = present ? *from : 0.0f;
#endif
  }

  // The sums of all warps, in their order. A thread has the same columns of both matrices of a
  // gated product.
  __device__ __forceinline__ void store(const ProductArgs& args, int waiting) {
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= kPart<Tokens>) return;
    const ResultTarget& target = shared_.targets[waiting][e];
    float* to = target.to;
    if (to == nullptr) return;
    const int token = Tokens == 1 ? 0 : e / kStripColumns % Tokens;
    float value = add_parts(shared_.parts[half_][waiting][0], kPart<Tokens>, e) *
                  shared_.factors.of[token] * args.multiplier;
    const int column = shared_.columns[waiting][e];
    const ResultPlace place{column % kMaxMatrices, token, column / kMaxMatrices};
    if (!finish_result<is_plain(kForm)>(place, args, gate_, value)) return;
    if (kForm != TokenForm::kPlain && args.gate_alone && place.matrix == 0) {
      value = act<Activation::kSilu>(args.activation, value);
    }
    if (args.accumulate) {
      wait_copies<0>();
      value += target.there + target.rest;
    }
    *to = value;
  }
  // Of sum e of a group.
  __device__ __forceinline__ static ResultPlace place_of(int matrix, const PieceStrips& strips,
                                                         int e) {
    const int first = strips.first * kStripColumns;
    if constexpr (Tokens == 1) return {matrix, 0, first + e};
    return {matrix, e / kStripColumns % Tokens,
            first + e / (kStripColumns * Tokens) * kStripColumns + e % kStripColumns};
  }

  Shared<Tokens>& shared_;
  TokenRing& ring_;
  Lane lane_;
  std::conditional_t<kPairs, PairTotals, LaneTotals<Tokens>> totals_ = {};
  float gate_ = 0.0f;
  int half_ = 0;
};

// The chunks of all matrices, or pairs of them, to where entries look for them; there once copies
// have been waited for.
template <bool kPairs>
__device__ __forceinline__ void copy_tables(const ProductArgs& args, std::byte* tables) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    std::byte* to = tables + args.matrices[i].chunks_at;
    const void* from = m.chunks;
    if (kPairs) from = m.pairs;
    const int bytes = table_bytes(m, kPairs);
    for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += kProductThreads * 16) {
      copy_small(to + at, static_cast<const std::byte*>(from) + at);
    }
  }
#endif
}

template <class Scales, WidthSet kWidths, int Tokens, TokenForm kForm, bool kPairs>
__global__ void __launch_bounds__(kThreads, 1)
    token_product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Tokens>*>(memory);
  const ProductArgs& args = launch.args;
  allow_next();
  const int begin = share_begin(launch.plan.begins, blockIdx.x);
  const int end = share_begin(launch.plan.begins, blockIdx.x + 1);
  std::byte* tables = memory + launch.tables_at;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  TokenRing ring(launch.ring, memory + launch.ring_at, shared.barriers);
  if (threadIdx.x >= kProductThreads) {
    ring.produce(launch.plan, begin, end, launch.ahead);
    return;
  }
#else
  if (threadIdx.x >= kProductThreads) return;
  TokenRing ring(args, PieceWalk(args, begin, end, kEntryStrips));
#endif
  OwnInput input;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  input.digits = counted_from(memory + sizeof(shared));
#else
  input.digits = memory + sizeof(shared);
#endif
  input.bytes = args.gather_bytes;
  input.token_stride = launch.token_stride;
  input.worth_at = args.worth_at;
  input.padded = launch.padded;
  input.first_matrix = launch.plan.matrix_of(begin);
  input.end_matrix = launch.one_gather ? input.first_matrix + 1
                     : args.gated      ? 2
                                       : launch.plan.matrix_of(end - 1) + 1;
  if constexpr (kForm == TokenForm::kAny) input.place_lowest_first(args);
  if (kPairs && threadIdx.x < std::size(shared.zeros)) shared.zeros[threadIdx.x] = {};
  static_assert(sizeof(ThreadSquares[Tokens]) <= sizeof(shared.parts));
  using Multiplier = TokenMultiplier<Scales, kWidths, Tokens, kForm, kPairs>;
  typename Multiplier::Lane lane;
  make_token_input<Tokens, kForm>(args, input, ring, shared.factors,
                                  reinterpret_cast<ThreadSquares(&)[Tokens]>(shared.parts), [&] {
                                    copy_tables<kPairs>(args, tables);
                                    if constexpr (kPairs) lane = PairLane::find();
                                  });
  Multiplier(shared, ring, lane).run(args, input, tables);
}

TokenLayout lay_out(const DeviceFacts& facts, const ProductArgs& args, const StripShares& shares) {
  const std::size_t fixed = args.tokens == 1 ? sizeof(Shared<1>) : sizeof(Shared<2>);
  return lay_out_token(args, shares,
                       {.fixed = static_cast<int>(fixed),
                        .all = static_cast<int>(facts.shared_bytes_per_cta),
                        .ring = facts.dependent_launch()});  // where there are bulk copies, too
}

using TokenKernel = void (*)(Launch);

template <class Scales, int Tokens, TokenForm kForm, bool kPairs = false>
TokenKernel kernel_of_scales(WidthSet widths) {
  constexpr bool kGptq = !std::is_same_v<Scales, ExlScales>;
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> TokenKernel {
    return token_product_kernel<Scales, kWidths, Tokens, kForm, kPairs>;
  });
}

template <int Tokens, TokenForm kForm>
TokenKernel kernel_of_form(const ProductArgs& args) {
  const WidthSet widths = widths_of(args);
  if (args.matrices[0].view.kind == ScaleKind::kExl2) {
    return kernel_of_scales<ExlScales, Tokens, kForm>(widths);
  }
  return has_no_zeros(args) ? kernel_of_scales<PlainGptqScales, Tokens, kForm>(widths)
                            : kernel_of_scales<GptqScales, Tokens, kForm>(widths);
}

// `factors`: some product of the step leaves or reads two rows that are to be multiplied.
TokenKernel kernel_of(const ProductArgs& args, bool factors) {
  if (args.tokens > 1) return kernel_of_form<2, TokenForm::kAny>(args);
  if (!is_plain(args)) return kernel_of_form<1, TokenForm::kAny>(args);
  const WidthSet widths = widths_of(args);
  if (factors && args.matrices[0].view.kind == ScaleKind::kExl2) {
    return args.pairs ? kernel_of_scales<ExlScales, 1, TokenForm::kPlainFactor, true>(widths)
                      : kernel_of_scales<ExlScales, 1, TokenForm::kPlainFactor>(widths);
  }
  return args.pairs ? kernel_of_scales<ExlScales, 1, TokenForm::kPlain, true>(widths)
                    : kernel_of_form<1, TokenForm::kPlain>(args);
}

}  // namespace

bool makes_own_input(const DeviceFacts& facts, const ProductArgs& args, const StripShares& shares) {
  for (int i = 0; i < args.count; ++i) {
    if (args.matrices[i].place_of_channel == nullptr) return false;
  }
  if (args.tokens > kMostTokens || args.in % 4 != 0 || !is_aligned(args.x, 16) ||
      !is_aligned(args.x_rest, 16) || !is_aligned(args.norm.weight, 16) ||
      (args.tokens > 1 && args.x_stride % 4 != 0)) {
    return false;
  }
  const TokenLayout layout = lay_out(facts, args, shares);
  if (args.tokens > 1 && layout.ring.slots < kLeastSlots) return false;
  return layout.bytes <= static_cast<int>(facts.shared_bytes_per_cta);
}

bool takes_pairs(const DeviceFacts& facts, const ProductArgs& args) {
  return facts.dependent_launch() && is_plain(args) &&
         std::all_of(args.matrices, args.matrices + args.count,
                     [](const ProductMatrix& m) { return m.view.pairs != nullptr; });
}

void token_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares,
                   std::span<const std::span<const Piece>> pieces, const ReadAhead& ahead) {
  check_product(args);
  const TokenLayout layout = lay_out(cuda_ops_of(ctx).backend->facts(), args, shares);
  Launch launch_args;
  launch_args.ring = layout.ring;
  launch_args.tables_at = layout.tables_at;
  launch_args.ring_at = layout.ring_at;
  launch_args.token_stride = layout.token_stride;
  launch_args.args = args;
  launch_args.ahead = ahead;
  launch_args.args.gather_bytes = layout.gather_bytes;
  launch_args.args.worth_at = layout.worth_at;
  launch_args.one_gather = has_one_gather(args);
  launch_args.padded = is_padded(args);
  int tables = 0;
  for (int i = 0; i < args.count; ++i) {
    ProductMatrix& m = launch_args.args.matrices[i];
    m.chunks_at = tables;
    tables += table_bytes(m.view, args.pairs);
  }
  launch_args.plan = plan_token(launch_args.args, shares, layout, pieces);
  ProductPlans& plans = cuda_ops_of(ctx).backend->product_plans();
  if (args.gate_alone || args.rest_multiplies) plans.meet_factors();
  const TokenKernel kernel = kernel_of(launch_args.args, plans.has_met_factors());
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(shares.ctas)), kThreads,
                  static_cast<std::size_t>(layout.bytes)),
         kernel, launch_args);
}

}  // namespace bl::cuda
