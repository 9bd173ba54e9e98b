#include "backend/cuda/product.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/piece_product.cuh"
#include "backend/cuda/piece_ring.cuh"
#include "backend/cuda/product_input.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kProductThreads + 32;  // the last warp issues the copies
// Fragments of more would leave the ring too little room.
constexpr int kMaxOwnFragmentBytes = 60 << 10;

// A CTA with more strips takes four at a time, which is fewer instructions; with few, the rest of a
// group of four that is not there would cost more.
constexpr int kManyStrips = 16;

// Groups of strips whose sums wait for one barrier, of one token.
constexpr int kMaxWaiting = 4;

struct Launch {
  ProductArgs args;
  RingShape ring;
  const std::int32_t* begins = nullptr;  // of shares
  // In shared memory, behind the barriers: fragments, sums of the warps, the ring.
  int parts_at = 0;
  int ring_at = 0;
  int waiting = 1;  // groups, at most kMaxWaiting
};

// A group of strips whose sums are to be added up.
struct Finished {
  int matrix = 0;
  PieceStrips strips;
};

// What lies in shared memory before all else.
struct alignas(128) Shared {
  std::uint64_t barriers[2 * kMaxRingSlots];
  RowSums row_sums;
  float token_scales[kMaxProductTokens];
  Finished finished[2][kMaxWaiting];
};

// Where the results of a group of strips go. A thread has the same ones of both groups of a gated
// product.
template <int Strips, int Tiles>
class Results {
 public:
  __device__ __forceinline__ void store(const ProductArgs& args, const Finished& group,
                                        const float* parts, const float* token_scales) {
    const int part = Strips * kStripColumns * args.tokens;
    const int count = group.strips.count * kStripColumns * args.tokens;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int e = static_cast<int>(threadIdx.x) + k * kProductThreads;
      if (e >= count) break;
      const float sum = add_parts(parts, part, e);
      const int row = e / kStripColumns;
      const int strip = args.tokens == 1 ? row : row / args.tokens;
      const int token = row - strip * args.tokens;
      put({group.matrix, token, (group.strips.first + strip) * kStripColumns + e % kStripColumns},
          args, gate_[k], sum * token_scales[token] * args.multiplier);
    }
  }

 private:
  static constexpr int kEach =
      (Strips * kStripColumns * Tiles * kTokenTile + kProductThreads - 1) / kProductThreads;

  struct Place {
    int matrix;
    int token;
    int column;
  };
  __device__ __forceinline__ static void put(const Place& at, const ProductArgs& args, float& gate,
                                             float value) {
    const ProductMatrix& m = args.matrices[at.matrix];
    if (at.column >= m.view.out) return;
    if (m.bias != nullptr) value += m.bias[at.column];
    if (args.gated && at.matrix == 0) {
      gate = value;
      return;
    }
    float* to = m.out + (args.first_token + at.token) * m.out_stride + at.column;
    if (args.gated) value = activated(args.activation, gate, value, true);
    *to = args.accumulate ? *to + value : value;
  }

  float gate_[kEach];
};

template <int Strips, int Tiles, bool kOneToken, class Scales>
__device__ __forceinline__ void multiply_share(const Launch& launch, std::byte* shared,
                                               PieceRing& ring, const OwnInput& own_input) {
  const ProductArgs& args = launch.args;
  auto& own = *reinterpret_cast<Shared*>(shared);
  const int part = Strips * kStripColumns * args.tokens;
  auto* parts = reinterpret_cast<float*>(shared + launch.parts_at);
  const int group_parts = kProductWarps * part;
  if constexpr (kOneToken) {
    make_fragments(args, own_input, own.row_sums, own.token_scales[0]);
  } else {
    dependency_wait();
    if (static_cast<int>(threadIdx.x) < args.tokens) {
      own.token_scales[threadIdx.x] = args.token_scales[args.first_token + threadIdx.x];
    }
  }
  std::conditional_t<kOneToken, OneTokenReader, InputReader<Tiles>> input;
  Results<Strips, Tiles> results;
  Sums<Strips, Tiles> totals;
  totals.clear();
  PieceView piece;
  int next = static_cast<int>(threadIdx.x) / 32;
  int half = 0;
  int waiting = 0;
  do {
    ring.template next<Strips>(args, own_input.fragments, piece);
    const CodeMatrixView& m = args.matrices[piece.matrix].view;
    if constexpr (kOneToken) {
      input.open(piece.fragments, m.units * kFragmentBytes);
    } else {
      input.open(piece.fragments, piece.token_stride, args.tokens);
    }
    multiply_piece<Strips, Tiles, kOneToken, Scales>(m, piece, input, next, totals);
    if ((piece.flags & kEndsStrips) == 0) {
      ring.release();
      continue;
    }
    if (threadIdx.x == 0) own.finished[half][waiting] = {piece.matrix, ring.strips()};
    ring.release();
    float* here = parts + (half * launch.waiting + waiting) * group_parts;
    keep_sums(totals, args.tokens, here + static_cast<int>(threadIdx.x) / 32 * part);
    totals.clear();
    ++waiting;
    if (waiting < launch.waiting && (piece.flags & kEndsShare) == 0) continue;
    product_sync();
    for (int i = 0; i < waiting; ++i) {
      results.store(args, own.finished[half][i], parts + (half * launch.waiting + i) * group_parts,
                    own.token_scales);
    }
    // Then the other half: who writes here again has passed the next barrier, behind these reads.
    half ^= 1;
    waiting = 0;
  } while ((piece.flags & kEndsShare) == 0);
}

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

template <int Strips, int Tiles, bool kOneToken, bool kGptq>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();
  const int begin = launch.begins[blockIdx.x];
  const int end = launch.begins[blockIdx.x + 1];
  const PieceWalk walk(launch.args, begin, end, Strips);
  using Scales = std::conditional_t<kGptq, GptqScales, ExlScales>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  auto& own = *reinterpret_cast<Shared*>(shared);
  PieceRing ring(launch.ring, shared + launch.ring_at, own.barriers);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kProductThreads) {
    ring.produce(launch.args, walk);
    return;
  }
#else
  PieceRing ring(launch.ring, walk);
  if (threadIdx.x >= kProductThreads) return;
#endif
  OwnInput input;
  if (kOneToken) {
    input.fragments = shared + sizeof(Shared);
    input.bytes = launch.ring.gather_bytes;
    find_matrices(launch.args, begin, end, input);
  }
  multiply_share<Strips, Tiles, kOneToken, Scales>(launch, shared, ring, input);
}

// Lays out shared memory; returns its bytes.
int lay_out(const DeviceFacts& facts, int strips, bool own_input, Launch& launch) {
  const ProductArgs& args = launch.args;
  RingShape& ring = launch.ring;
  ring.tokens = own_input ? 0 : args.tokens;
  int units = 0;
  int gathers = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& m = args.matrices[i];
    ring.make_room(m.piece_bytes, m.piece_scale_bytes);
    units = std::max(units, m.view.units);
    gathers = std::max(gathers, m.gather + 1);
  }
  ring.lay_out_slot(strips);
  ring.gather_bytes = own_input ? gather_bytes(units) : 0;
  const int fragments = ring.gather_bytes * gathers;
  launch.parts_at = static_cast<int>(sizeof(Shared)) + fragments;
  const int part = strips * kStripColumns * args.tokens * static_cast<int>(sizeof(float));
  launch.waiting = own_input ? kMaxWaiting : 1;
  launch.ring_at = RingShape::rounded(launch.parts_at + 2 * launch.waiting * kProductWarps * part);
  if (!facts.dependent_launch()) return launch.ring_at;  // no bulk copies either
  const auto whole = static_cast<int>(facts.shared_bytes_per_cta);
  ring.slots = std::clamp((whole - launch.ring_at) / ring.slot_bytes, 1, kMaxRingSlots);
  return launch.ring_at + ring.slots * ring.slot_bytes;
}

template <int Strips, int Tiles, bool kOneToken>
void start(ExecContext& ctx, Launch& launch_args, int ctas) {
  const int bytes = lay_out(cuda_ops_of(ctx).backend->facts(), Strips, kOneToken, launch_args);
  const bool gptq = launch_args.args.matrices[0].view.kind != ScaleKind::kExl2;
  const auto kernel = gptq ? product_kernel<Strips, Tiles, kOneToken, true>
                           : product_kernel<Strips, Tiles, kOneToken, false>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(
      shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, static_cast<std::size_t>(bytes)),
      kernel, launch_args);
}

}  // namespace

bool prepares_itself(const ProductArgs& args) {
  std::int64_t units = 0;
  std::int64_t gathers = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& m = args.matrices[i];
    if (m.place_of_channel == nullptr) return false;
    units = std::max<std::int64_t>(units, m.view.units);
    gathers = std::max<std::int64_t>(gathers, m.gather + 1);
  }
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return args.tokens == 1 && gathers * units * kFragmentBytes <= kMaxOwnFragmentBytes &&
         args.in % 4 == 0 && aligned(args.x) && aligned(args.norm.weight);
}

void product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxProductTokens);
  Launch launch_args;
  launch_args.args = args;
  launch_args.begins = shares.begins;
  for (int i = 0; i < args.count; ++i) {
    BL_CHECK((args.matrices[i].view.kind == ScaleKind::kExl2) ==
             (args.matrices[0].view.kind == ScaleKind::kExl2));
  }
  BL_CHECK(!args.gated ||
           (args.count == 2 && args.matrices[0].view.strips == args.matrices[1].view.strips));
  if (args.matrices[0].fragments == nullptr) {
    if (shares.most_strips > kManyStrips) {
      start<4, 1, true>(ctx, launch_args, shares.ctas);
    } else {
      start<2, 1, true>(ctx, launch_args, shares.ctas);
    }
  } else if (args.tokens <= kTokenTile) {
    start<2, 1, false>(ctx, launch_args, shares.ctas);
  } else {
    start<3, 2, false>(ctx, launch_args, shares.ctas);
  }
}

}  // namespace bl::cuda
