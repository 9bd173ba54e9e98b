#include <algorithm>

#include "backend/cuda/code_digits.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/piece_product.cuh"
#include "backend/cuda/product.h"
#include "backend/cuda/product_result.cuh"
#include "backend/cuda/token_input.cuh"
#include "backend/cuda/token_ring.cuh"
#include "backend/cuda/warp_reduce.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kProductThreads + 32;  // the last warp issues the copies
constexpr int kSlotStrips = 4;                  // that a slot of the ring has room for
// Groups of strips whose sums wait for one barrier.
constexpr int kMaxWaiting = 2;
constexpr int kPart = kSlotStrips * kStripColumns;  // sums of a warp and group

struct Launch {
  ProductArgs args;
  RingShape ring;
  const std::int32_t* begins = nullptr;  // of shares
  int ring_at = 0;                       // in shared memory, behind Shared and the input
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

// totals += this warp's chunks of the piece, see multiply_piece.
template <class Scales, int Strips>
__device__ __forceinline__ void multiply_token_piece(const CodeMatrixView& m,
                                                     const PieceView& piece, int& next,
                                                     float (&totals)[kSlotStrips][2]) {
  const int lane = lane_index();
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
    for (int i = 0; i < Strips; ++i) {
      add_worth(scales.of(at + min(i, piece.strips - 1) * piece.scale_stride, lane), worth,
                sums.at[i], totals[i]);
    }
  }
  next -= piece.chunks;
}

// A warp's sums, of both halves of the slots; the totals are cleared.
__device__ __forceinline__ void keep_token_sums(float (&totals)[kSlotStrips][2], float* part) {
  const int lane = lane_index();
#pragma unroll
  for (int i = 0; i < kSlotStrips; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = totals[i][h] + __shfl_xor_sync(kAllLanes, totals[i][h], 1);
      if (lane % 4 == 0) part[i * kStripColumns + 8 * h + lane / 4] = sum;
      totals[i][h] = 0.0f;
    }
}

template <class Scales>
class TokenMultiplier {
 public:
  __device__ __forceinline__ TokenMultiplier(Shared& shared, TokenRing& ring)
      : shared_(shared), ring_(ring) {}

  // One share, whose input is ready.
  __device__ __forceinline__ void run(const ProductArgs& args, const OwnInput& input) {
    PieceView piece;
    int next = warp_index();
    int waiting = 0;
    do {
      ring_.next(args, input.digits, piece);
      const CodeMatrixView& m = args.matrices[piece.matrix].view;
      if ((piece.flags & kEndsStrips) != 0) ask_for_earlier(args, piece.matrix, waiting);
      if (piece.strips <= 2) {
        multiply_token_piece<Scales, 2>(m, piece, next, totals_);
      } else {
        multiply_token_piece<Scales, kSlotStrips>(m, piece, next, totals_);
      }
      if ((piece.flags & kEndsStrips) == 0) {
        ring_.release();
        continue;
      }
      if (threadIdx.x == 0) shared_.finished[half_][waiting] = {piece.matrix, ring_.strips()};
      ring_.release();
      keep_token_sums(totals_, shared_.parts[half_][waiting][warp_index()]);
      ++waiting;
      if (waiting < kMaxWaiting && (piece.flags & kEndsShare) == 0) continue;
      product_sync();
      for (int i = 0; i < waiting; ++i) store(args, i);
      // Then the other half: who writes here again has passed the next barrier, behind these reads.
      half_ ^= 1;
      waiting = 0;
    } while ((piece.flags & kEndsShare) == 0);
  }

 private:
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
  float totals_[kSlotStrips][2] = {};
  float earlier_[kMaxWaiting] = {};
  float gate_ = 0.0f;
  int half_ = 0;
};

template <bool kGptq>
__global__ void __launch_bounds__(kThreads, 1)
    token_product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const ProductArgs& args = launch.args;
  allow_next();
  const int begin = launch.begins[blockIdx.x];
  const int end = launch.begins[blockIdx.x + 1];
  const PieceWalk walk(args, begin, end, kSlotStrips);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  TokenRing ring(launch.ring, memory + launch.ring_at, shared.barriers);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kProductThreads) {
    ring.produce(args, walk);
    return;
  }
#else
  if (threadIdx.x >= kProductThreads) return;
  TokenRing ring(launch.ring, walk);
#endif
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
  TokenMultiplier<Scales>(shared, ring).run(args, input);
}

// How shared memory is laid out: Shared, the input, the ring.
struct Layout {
  RingShape ring;
  int gather_bytes = 0;
  int ring_at = 0;
  int bytes = 0;  // at least
};

// Whether codes are so narrow that an entry of twice as many pieces is mostly no more than a
// quarter of the ring's `space`: fewer entries are to be brought and to be waited for.
bool are_narrow(const ProductArgs& args, int space) {
  std::int64_t piece = 0;  // bytes of a piece and strip, on average
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    piece = std::max(piece, m.strip_bytes * kMaxPieceUnits / m.units);
  }
  return 2 * kSlotStrips * piece <= space / 4;
}

Layout lay_out(const DeviceFacts& facts, const ProductArgs& args) {
  Layout layout;
  RingShape& ring = layout.ring;
  int units = 0;
  int gathers = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& matrix = args.matrices[i];
    ring.make_room(matrix.piece_bytes, matrix.piece_scale_bytes);
    units = std::max(units, matrix.view.units);
    gathers = std::max(gathers, matrix.gather + 1);
  }
  ring.most_joined = kSlotStrips;
  layout.gather_bytes = gather_bytes(units);
  layout.ring_at =
      RingShape::rounded(static_cast<int>(sizeof(Shared)) + gathers * layout.gather_bytes);
  const int space =
      static_cast<int>(facts.shared_bytes_per_cta) - layout.ring_at - RingShape::kHeadersBytes;
  if (are_narrow(args, space)) {
    RingShape twice = ring;
    twice.most_joined *= 2;
    if (twice.largest_entry(twice.most_joined) <= space) ring = twice;
  }
  layout.bytes = layout.ring_at;
  if (facts.dependent_launch()) {  // else there are no bulk copies either
    layout.bytes += RingShape::kHeadersBytes + ring.largest_entry(ring.most_joined);
  }
  return layout;
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

void token_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares) {
  check_product(args);
  const DeviceFacts& facts = cuda_ops_of(ctx).backend->facts();
  Layout layout = lay_out(facts, args);
  if (facts.dependent_launch()) {
    layout.bytes = static_cast<int>(facts.shared_bytes_per_cta);
    layout.ring.fill(layout.bytes - layout.ring_at, layout.ring.most_joined);
  }
  Launch launch_args{args, layout.ring, shares.begins, layout.ring_at};
  launch_args.args.gather_bytes = layout.gather_bytes;
  const bool gptq = args.matrices[0].view.kind != ScaleKind::kExl2;
  const auto kernel = gptq ? token_product_kernel<true> : token_product_kernel<false>;
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(shares.ctas)), kThreads,
                  static_cast<std::size_t>(layout.bytes)),
         kernel, launch_args);
}

}  // namespace bl::cuda
