#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/product/code_digits.cuh"
#include "backend/cuda/product/piece_product.cuh"
#include "backend/cuda/product/product.h"
#include "backend/cuda/product/product_result.cuh"
#include "backend/cuda/product/token_input.cuh"
#include "backend/cuda/product/token_ring.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kProductThreads + 32;  // the last warp issues the copies
constexpr int kSlotStrips = 4;                  // that a slot of the ring has room for
constexpr int kFewestSlots = 3;                 // of a ring, for entries to be as long as they may
// Groups of strips whose sums wait for one barrier.
constexpr int kMaxWaiting = 2;
constexpr int kPart = kSlotStrips * kStripColumns;  // sums of a warp and group
constexpr int kPairs = kSlotStrips / 2;             // of strips, see take_strip

struct Launch {
  ProductArgs args;
  TokenPlan plan;
  TokenRingShape ring;
  // In shared memory, behind Shared and the input: all matrices' chunks, and the ring.
  int tables_at = 0;
  int ring_at = 0;
};

// What lies in shared memory before all else.
struct alignas(128) Shared {
  std::uint64_t barriers[2 * kMaxRingSlots];
  RowSums row_sums;
  float factor;  // of results
  FinishedGroup finished[2][kMaxWaiting];
  float parts[2][kMaxWaiting][kProductWarps][kPart];
};

// The matrices that strips [begin, end) are of.
__device__ __forceinline__ void find_matrices(const ProductArgs& args, int begin, int end,
                                              OwnInput& input) {
  if (args.gated) {  // strips count for both
    input.end_matrix = 2;
    return;
  }
  int before = 0;
  for (int i = 0; i < args.count; ++i) {
    if (before <= begin) input.first_matrix = i;
    if (before < end) input.end_matrix = i + 1;
    before += args.matrices[i].view.strips;
  }
}

// totals += this warp's chunks of the piece, see multiply_piece. A lane has the totals of one strip
// of each pair.
template <class Scales, int Strips>
__device__ __forceinline__ void multiply_token_piece(const CodeMatrixView& m,
                                                     const PieceView& piece, int& next,
                                                     float (&totals)[kPairs][2]) {
  const int lane = lane_index();
  constexpr int kOwn = (Strips + 1) / 2;
  int scales_at[kOwn];
#pragma unroll
  for (int p = 0; p < kOwn; ++p) {
    const int strip = 2 * p + (takes_second_strip() ? 1 : 0);
    scales_at[p] = min(strip, piece.strips - 1) * piece.scale_stride;
  }
  for (; next < piece.chunks; next += kProductWarps) {
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = piece.chunk_words[next];
    DigitSums<Strips> sums;
    const std::byte* input = piece.fragments + chunk.first_unit * kInputUnitBytes;
    multiply_digits(
        chunk.bits,
        {piece.codes + chunk.offset * unit_bytes(1), piece.code_stride, piece.strips, chunk.units},
        DigitReader(input, lane), sums);
    const Scales scales(m, chunk, lane, 1.0f);
    const float2 worth = ChunkWorth::of_lane(input, lane);
    const std::byte* at = piece.scales + chunk.group * Scales::bytes(m.kind);
#pragma unroll
    for (int p = 0; p < kOwn; ++p) {
      int own[4];
      take_strip(sums.at[2 * p], sums.at[2 * p + 1 < Strips ? 2 * p + 1 : 2 * p], own);
      add_worth(scales.of(at + scales_at[p], lane), worth, own, totals[p]);
    }
  }
}

// A warp's sums, of both halves of the slots; the totals are cleared.
__device__ __forceinline__ void keep_token_sums(float (&totals)[kPairs][2], float* part) {
  const int lane = lane_index();
  const int column = lane % 4 / 2 * kStripColumns + lane / 4;
#pragma unroll
  for (int p = 0; p < kPairs; ++p)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = totals[p][h] + __shfl_xor_sync(kAllLanes, totals[p][h], 1);
      if (lane % 2 == 0) part[2 * p * kStripColumns + 8 * h + column] = sum;
      totals[p][h] = 0.0f;
    }
}

template <class Scales>
class TokenMultiplier {
 public:
  __device__ __forceinline__ TokenMultiplier(Shared& shared, TokenRing& ring)
      : shared_(shared), ring_(ring) {}

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
      if (threadIdx.x == 0) shared_.finished[half_][waiting] = {matrix_, ring_.strips()};
      ring_.release();
      keep_token_sums(totals_, shared_.parts[half_][waiting][warp_index()]);
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
    matrix_ = piece.matrix;
    const CodeMatrixView& m = args.matrices[piece.matrix].view;
    if ((piece.flags & kEndsStrips) != 0) ask_for_earlier(args, piece.matrix, waiting);
    if (piece.strips <= 2) {
      multiply_token_piece<Scales, 2>(m, piece, next, totals_);
    } else if (piece.strips == 3) {
      multiply_token_piece<Scales, 3>(m, piece, next, totals_);
    } else {
      multiply_token_piece<Scales, kSlotStrips>(m, piece, next, totals_);
    }
  }
  // What results are added to, on its way while the group's last entry is multiplied.
  __device__ __forceinline__ void ask_for_earlier(const ProductArgs& args, int matrix,
                                                  int waiting) {
    if (!args.accumulate) return;
    const PieceStrips strips = ring_.strips();
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= strips.count * kStripColumns) return;
    const float value = earlier_result({matrix, 0, strips.first * kStripColumns + e}, args);
    (waiting == 0 ? earlier_[0] : earlier_[1]) = value;
  }

  // The sums of all warps, in their order. A thread has the same columns of both matrices of a
  // gated product.
  __device__ __forceinline__ void store(const ProductArgs& args, int waiting) {
    const FinishedGroup& group = shared_.finished[half_][waiting];
    const auto e = static_cast<int>(threadIdx.x);
    if (e >= group.strips.count * kStripColumns) return;
    const float sum = add_parts(shared_.parts[half_][waiting][0], kPart, e);
    const float earlier = waiting == 0 ? earlier_[0] : earlier_[1];
    store_result({group.matrix, 0, group.strips.first * kStripColumns + e}, args, gate_,
                 sum * shared_.factor * args.multiplier, [&](const float*) { return earlier; });
  }

  Shared& shared_;
  TokenRing& ring_;
  float totals_[kPairs][2] = {};
  float earlier_[kMaxWaiting] = {};
  float gate_ = 0.0f;
  int half_ = 0;
  int matrix_ = 0;  // of the last entry with flags
};

// The chunks of all matrices to where entries look for them; there once copies have been waited
// for.
__device__ __forceinline__ void copy_tables(const ProductArgs& args, std::byte* tables) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    std::byte* to = tables + args.matrices[i].chunks_at;
    for (int c = static_cast<int>(threadIdx.x); c < m.chunk_count; c += kProductThreads) {
      copy_small(to + c * sizeof(Chunk), m.chunks + c);
    }
  }
#endif
}

template <bool kGptq>
__global__ void __launch_bounds__(kThreads, 1)
    token_product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const ProductArgs& args = launch.args;
  allow_next();
  const int begin = launch.plan.begin(blockIdx.x);
  const int end = launch.plan.begin(blockIdx.x + 1);
  const PieceWalk walk(args, begin, end, kSlotStrips);
  std::byte* tables = memory + launch.tables_at;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  TokenRing ring(launch.ring, memory + launch.ring_at, shared.barriers);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kProductThreads) {
    ring.produce(args, launch.plan, walk);
    return;
  }
#else
  if (threadIdx.x >= kProductThreads) return;
  TokenRing ring(args, walk);
#endif
  copy_tables(args, tables);
  OwnInput input;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  input.digits = counted_from(memory + sizeof(Shared));
#else
  input.digits = memory + sizeof(Shared);
#endif
  input.bytes = args.gather_bytes;
  find_matrices(args, begin, end, input);
  make_token_input(args, input, shared.row_sums, shared.factor);
  using Scales = std::conditional_t<kGptq, GptqScales, ExlScales>;
  TokenMultiplier<Scales>(shared, ring).run(args, input, tables);
}

// How shared memory is laid out: Shared, the input, chunks, the ring.
struct Layout {
  TokenRingShape ring;
  int gather_bytes = 0;
  int tables_at = 0;
  int ring_at = 0;
  int bytes = 0;
};

// Places of `room` for an entry of so many pieces.
TokenRingShape ring_of(const RingShape& room, int most_joined, int space) {
  TokenRingShape ring;
  ring.most_joined = most_joined;
  ring.scale_room = RingShape::rounded(most_joined * room.scale_room);
  ring.slot_bytes = ring.scale_room + RingShape::rounded(most_joined * room.code_room);
  ring.slots = std::min(kMaxRingSlots, space / ring.slot_bytes);
  return ring;
}

Layout lay_out(const DeviceFacts& facts, const ProductArgs& args) {
  Layout layout;
  RingShape room;
  int units = 0;
  int gathers = 0;
  int chunks = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& matrix = args.matrices[i];
    room.make_room(matrix.piece_bytes, matrix.piece_scale_bytes);
    units = std::max(units, matrix.view.units);
    gathers = std::max(gathers, matrix.gather + 1);
    chunks += matrix.view.chunk_count;
  }
  layout.gather_bytes = gather_bytes(units);
  layout.tables_at =
      RingShape::rounded(static_cast<int>(sizeof(Shared)) + gathers * layout.gather_bytes);
  layout.bytes = layout.tables_at;
  if (!facts.dependent_launch()) return layout;  // then there are no bulk copies either
  layout.ring_at = RingShape::rounded(layout.tables_at + chunks * static_cast<int>(sizeof(Chunk)));
  const int space =
      static_cast<int>(facts.shared_bytes_per_cta) - layout.ring_at - RingShape::kHeadersBytes;
  // Where codes are narrow, twice as many pieces an entry: fewer entries are to be brought and to
  // be waited for.
  layout.ring = ring_of(room, kSlotStrips, space);
  const TokenRingShape twice = ring_of(room, 2 * kSlotStrips, space);
  if (twice.slots >= kFewestSlots) layout.ring = twice;
  layout.bytes = layout.ring_at + RingShape::kHeadersBytes +
                 std::max(layout.ring.slots, 1) * layout.ring.slot_bytes;
  return layout;
}

TokenPlan plan_of(const StripShares& shares, std::span<const CodeWeights* const> weights) {
  TokenPlan plan;
  if (shares.ctas <= TokenPlan::kMostShares) {
    std::copy(shares.host_begins.begin(), shares.host_begins.end(), plan.begins);
  } else {
    plan.far_begins = shares.begins;
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::vector<Piece>& pieces = weights[i]->plan.pieces;
    if (pieces.size() <= TokenPlan::kMostPieces) {
      std::copy(pieces.begin(), pieces.end(), plan.pieces[i]);
    }
  }
  return plan;
}

}  // namespace

bool makes_own_input(const DeviceFacts& facts, const ProductArgs& args) {
  for (int i = 0; i < args.count; ++i) {
    if (args.matrices[i].place_of_channel == nullptr) return false;
  }
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return args.tokens == 1 && args.in % 4 == 0 && aligned(args.x) && aligned(args.norm.weight) &&
         lay_out(facts, args).bytes <= static_cast<int>(facts.shared_bytes_per_cta);
}

void token_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares,
                   std::span<const CodeWeights* const> weights) {
  check_product(args);
  const Layout layout = lay_out(cuda_ops_of(ctx).backend->facts(), args);
  Launch launch_args{args, plan_of(shares, weights), layout.ring, layout.tables_at, layout.ring_at};
  launch_args.args.gather_bytes = layout.gather_bytes;
  int chunks = 0;
  for (int i = 0; i < args.count; ++i) {
    launch_args.args.matrices[i].chunks_at = chunks * static_cast<int>(sizeof(Chunk));
    chunks += args.matrices[i].view.chunk_count;
  }
  const bool gptq = args.matrices[0].view.kind != ScaleKind::kExl2;
  const auto kernel = gptq ? token_product_kernel<true> : token_product_kernel<false>;
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(shares.ctas)), kThreads,
                  static_cast<std::size_t>(layout.bytes)),
         kernel, launch_args);
}

}  // namespace bl::cuda
