#pragma once
// The pieces of a CTA's strips on their way into shared memory: one warp issues bulk copies, the
// others multiply what has come. Weights never wait for the kernel before; activations that travel
// with them do.
//
// Where there are no bulk copies (compute capability below 9) the multiplying warps walk over the
// same pieces and read them where they lie.

#include <algorithm>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/code_product.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product.h"

namespace bl::cuda {

// Of a CTA, that multiply; one more issues the copies.
inline constexpr int kProductWarps = 15;
inline constexpr int kMaxRingSlots = 8;
inline constexpr int kFragmentBytes = 64;  // of a token and unit
// From one token's fragments to the next one's in a slot: lanes of eight tokens meet all banks.
inline constexpr int kTokenStride = kMaxPieceUnits * kFragmentBytes + 64;

// How slots are laid out, in bytes; the same for all of a launch.
struct RingShape {
  int slots = 0;
  int scale_room = 0;  // of a strip
  int code_room = 0;   // of a strip
  int tokens = 0;      // whose fragments travel along, or 0
  int codes_at = 0;    // in a slot, behind header, chunks and scales
  int fragments_at = 0;
  int slot_bytes = 0;
  int gather_bytes = 0;  // of the fragments that a CTA makes itself, of a gather

  static constexpr int kHeaderBytes = 64;
  static constexpr int kScalesAt = kHeaderBytes + kMaxPieceUnits * static_cast<int>(sizeof(Chunk));

  // Where bulk copies and lanes' loads may begin.
  BL_HD static constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }
  // Room for pieces of such a matrix too.
  void make_room(std::int32_t piece_bytes, std::int32_t piece_scale_bytes) {
    code_room = std::max(code_room, rounded(piece_bytes));
    scale_room = std::max(scale_room, rounded(piece_scale_bytes));
  }
  // Places in a slot for so many strips, once all room is made and `tokens` is known.
  void lay_out_slot(int strips) {
    codes_at = rounded(kScalesAt + strips * scale_room);
    fragments_at = codes_at + strips * code_room;
    slot_bytes = rounded(fragments_at + tokens * kTokenStride);
  }
};

// What a piece says of itself. The first 16 bytes are all that a warp needs of most pieces.
struct alignas(16) PieceHeader {
  std::uint8_t chunks = 0;
  std::uint8_t matrix = 0;
  std::uint16_t flags = 0;
  // To be added to a chunk's offset and to its group's place, so that they count in the slot.
  std::int32_t codes_from = 0;
  std::int32_t scales_from = 0;
  std::int32_t fragments_from = 0;  // where unit 0 of the first token would be, see RingShape
  std::int32_t first_strip = 0;     // of the matrix
  std::int32_t strips = 0;
  std::int32_t unused[2] = {};
};
inline constexpr int kEndsStrips = 1;
inline constexpr int kEndsShare = 2;
static_assert(sizeof(PieceHeader) <= RingShape::kHeaderBytes);

// The strips that a piece is of.
struct PieceStrips {
  int first = 0;  // of the matrix
  int count = 0;
};

// Follows the pieces of a share: strips in groups of at most `at_once`, of one matrix each, every
// group piece by piece. Gated products take a group of the first matrix, then the same strips of
// the second.
class PieceWalk {
 public:
  __device__ PieceWalk(const ProductArgs& args, int begin, int end, int at_once)
      : args_(args), at_(begin), end_(end), at_once_(at_once), matrix_(args.gated ? 1 : 0) {}

  // The next group; false where there is none left.
  __device__ __forceinline__ bool open_group() {
    if (args_.gated && matrix_ == 0) {
      matrix_ = 1;
    } else {
      at_ += strips_;
      if (at_ >= end_) return false;
      int limit = end_;
      if (args_.gated) {
        matrix_ = 0;
      } else {
        while (at_ >= strips_before_ + args_.matrices[matrix_].view.strips) {
          strips_before_ += args_.matrices[matrix_++].view.strips;
        }
        limit = min(end_, strips_before_ + args_.matrices[matrix_].view.strips);
      }
      strips_ = min(at_once_, limit - at_);
    }
    return true;
  }
  __device__ __forceinline__ int matrix() const { return matrix_; }
  __device__ __forceinline__ PieceStrips strips() const { return {at_ - strips_before_, strips_}; }
  __device__ __forceinline__ bool is_last() const {
    return at_ + strips_ >= end_ && (!args_.gated || matrix_ == 1);
  }
  // Of the group's piece `index` of `pieces`.
  __device__ __forceinline__ int flags(int index, int pieces) const {
    if (index + 1 < pieces) return 0;
    return kEndsStrips | (is_last() ? kEndsShare : 0);
  }

 private:
  const ProductArgs& args_;
  int at_;
  int end_;
  int at_once_;
  int matrix_;
  int strips_ = 0;
  int strips_before_ = 0;
};

// A piece as the multiplying warps see it.
struct PieceView {
  int chunks = 0;
  int matrix = 0;
  int flags = 0;
  int readable = 0;                    // strips that there is room for, at least those it has
  const uint4* chunk_words = nullptr;  // a Chunk each
  const std::byte* scales = nullptr;   // where group 0 of the first strip would be
  int scale_stride = 0;                // between strips
  const std::byte* codes = nullptr;    // where the first strip would begin
  int code_stride = 0;
  const std::byte* fragments = nullptr;  // where unit 0 of the first token would be
  int token_stride = 0;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class PieceRing {
 public:
  __device__ PieceRing(const RingShape& shape, std::byte* slots, std::uint64_t* barriers)
      : shape_(shape), slots_(slots), filled_(barriers), free_(barriers + kMaxRingSlots) {}

  // By one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < shape_.slots; ++i) {
      barrier_init(filled_ + i, 1);
      barrier_init(free_ + i, kProductWarps * 32);
    }
    barrier_init_fence();
  }

  // The producing warp's whole life. Fragments wait for the kernel before; until the ring is full,
  // they are asked for a slot behind the weights.
  __device__ void produce(const ProductArgs& args, PieceWalk walk) {
    int slot = 0;
    int filled = 0;
    std::uint32_t phase = 0;
    const PieceWalk behind = walk;
    bool behind_is_done = shape_.tokens == 0;
    while (walk.open_group()) {
      const Lane lane(args, walk, shape_);
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      const auto* words = reinterpret_cast<const uint4*>(m.pieces);
      const int pieces = m.piece_count;
      uint4 next = __ldg(words);
      for (int i = 0; i < pieces; ++i) {
        Piece piece;
        *reinterpret_cast<uint4*>(&piece) = next;
        next = __ldg(words + min(i + 1, pieces - 1));
        if (filled == shape_.slots) {
          barrier_wait(free_ + slot, phase ^ 1u);
        } else {
          ++filled;
        }
        issue_weights(lane, piece, walk.flags(i, pieces), slot);
        if (behind_is_done) {
          if (shape_.tokens > 0) issue_fragments(args, walk.matrix(), piece, slot);
        } else if (filled == shape_.slots) {
          issue_first_fragments(args, behind, filled);
          behind_is_done = true;
        }
        if (++slot == shape_.slots) {
          slot = 0;
          phase ^= 1u;
        }
      }
    }
    if (!behind_is_done) issue_first_fragments(args, behind, filled);
  }

  // The next piece, for a multiplying warp; fragments are those that came with it, or lie at
  // `own_fragments`.
  template <int Strips>
  __device__ __forceinline__ void next(const ProductArgs&, const std::byte* own_fragments,
                                       PieceView& view) {
    barrier_wait(filled_ + slot_, phase_);
    const std::byte* slot = current();
    const int4 head = *reinterpret_cast<const int4*>(slot);
    view.chunks = head.x & 0xff;
    view.matrix = head.x >> 8 & 0xff;
    view.flags = head.x >> 16;
    view.readable = Strips;
    view.chunk_words = reinterpret_cast<const uint4*>(slot + RingShape::kHeaderBytes);
    view.codes = slot + head.y;
    view.code_stride = shape_.code_room;
    view.scales = slot + head.z;
    view.scale_stride = shape_.scale_room;
    view.fragments = (shape_.tokens > 0 ? slot : own_fragments) + head.w;
    view.token_stride = kTokenStride;
  }
  // Of the piece that was not released yet.
  __device__ __forceinline__ PieceStrips strips() const {
    const int2 of = *reinterpret_cast<const int2*>(current() + 16);
    return {of.x, of.y};
  }
  // The piece has been used by this warp.
  __device__ __forceinline__ void release() {
    // Every lane for itself: one for all behind __syncwarp() is as good, but racecheck cannot
    // follow.
    barrier_arrive(free_ + slot_);
    if (++slot_ == shape_.slots) {
      slot_ = 0;
      phase_ ^= 1u;
    }
  }

 private:
  __device__ __forceinline__ const std::byte* current() const {
    return slots_ + slot_ * shape_.slot_bytes;
  }
  // What one lane copies of every piece of a group: the codes or the scales of a strip, or the
  // chunks; the groups of strips have eight at most.
  struct Lane {
    enum Role { kCodes, kScales, kChunks, kNothing };
    Role role = kNothing;
    const std::byte* from = nullptr;
    int to = 0;  // in the slot
    int scale_bytes = 0;
    int matrix = 0;
    PieceStrips strips;
    int fragments_from = 0;  // of a CTA's own

    __device__ __forceinline__ Lane(const ProductArgs& args, const PieceWalk& walk,
                                    const RingShape& shape)
        : matrix(walk.matrix()), strips(walk.strips()) {
      const ProductMatrix& of = args.matrices[matrix];
      const CodeMatrixView& m = of.view;
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int strip = strips.first + lane % 8;
      scale_bytes = cuda::scale_bytes(m.kind);
      fragments_from = of.gather * shape.gather_bytes;
      if (lane < strips.count) {
        role = kCodes;
        from = m.codes + strip * m.strip_bytes;
        to = shape.codes_at + lane * shape.code_room;
      } else if (lane >= 8 && lane < 8 + strips.count) {
        role = kScales;
        from = m.scales + strip * scale_stride(m.kind, m.groups);
        to = RingShape::kScalesAt + (lane - 8) * shape.scale_room;
      } else if (lane == 16) {
        role = kChunks;
        from = reinterpret_cast<const std::byte*>(m.chunks);
        to = RingShape::kHeaderBytes;
      }
    }
  };

  // Accounts for all that comes in the slot's phase, fragments included.
  __device__ __forceinline__ void issue_weights(const Lane& lane, const Piece& piece, int flags,
                                                int at) {
    std::byte* slot = slots_ + at * shape_.slot_bytes;
    std::uint64_t* barrier = filled_ + at;
    const int codes = piece.size * 64;
    const int first_scale = piece.first_group * lane.scale_bytes;
    const int scales_from = first_scale / 16 * 16;
    const int scales = (first_scale + piece.groups * lane.scale_bytes + 15) / 16 * 16 - scales_from;
    const int chunks = piece.chunks * static_cast<int>(sizeof(Chunk));
    if (threadIdx.x % 32 == 0) {
      PieceHeader header;
      header.chunks = piece.chunks;
      header.matrix = static_cast<std::uint8_t>(lane.matrix);
      header.flags = static_cast<std::uint16_t>(flags);
      header.codes_from = shape_.codes_at - static_cast<int>(piece.offset) * 64;
      header.scales_from = RingShape::kScalesAt - scales_from;
      header.fragments_from = shape_.tokens > 0
                                  ? shape_.fragments_at - piece.first_unit * kFragmentBytes
                                  : lane.fragments_from;
      header.first_strip = lane.strips.first;
      header.strips = lane.strips.count;
      *reinterpret_cast<PieceHeader*>(slot) = header;
      barrier_expect(barrier, chunks + lane.strips.count * (scales + codes) +
                                  shape_.tokens * piece.units * kFragmentBytes);
    }
    __syncwarp();
    if (lane.role == Lane::kNothing) return;
    const std::int64_t offset = lane.role == Lane::kCodes    ? std::int64_t{piece.offset} * 64
                                : lane.role == Lane::kScales ? scales_from
                                                             : piece.first_chunk * 16;
    bulk_copy(slot + lane.to, lane.from + offset,
              lane.role == Lane::kCodes    ? codes
              : lane.role == Lane::kScales ? scales
                                           : chunks,
              barrier);
  }

  // A lane a token.
  __device__ __forceinline__ void issue_fragments(const ProductArgs& args, int matrix,
                                                  const Piece& piece, int at) {
    __syncwarp();
    const int token = static_cast<int>(threadIdx.x) % 32;
    if (token < shape_.tokens) {
      std::byte* slot = slots_ + at * shape_.slot_bytes;
      const ProductMatrix& m = args.matrices[matrix];
      const std::int64_t unit =
          (args.first_token + token) * std::int64_t{m.view.units} + piece.first_unit;
      bulk_copy(slot + shape_.fragments_at + token * kTokenStride,
                reinterpret_cast<const std::byte*>(m.fragments) + unit * kFragmentBytes,
                piece.units * kFragmentBytes, filled_ + at);
    }
    __syncwarp();
  }

  // Of the pieces that filled the ring first.
  __device__ __forceinline__ void issue_first_fragments(const ProductArgs& args, PieceWalk walk,
                                                        int count) {
    dependency_wait();
    int slot = 0;
    while (slot < count && walk.open_group()) {
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      for (int i = 0; i < m.piece_count && slot < count; ++i, ++slot) {
        Piece piece;
        *reinterpret_cast<uint4*>(&piece) = __ldg(reinterpret_cast<const uint4*>(m.pieces) + i);
        issue_fragments(args, walk.matrix(), piece, slot);
      }
    }
  }

  const RingShape& shape_;
  std::byte* slots_;
  std::uint64_t* filled_;
  std::uint64_t* free_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
};

#else

class PieceRing {
 public:
  __device__ PieceRing(const RingShape& shape, const PieceWalk& walk)
      : walk_(walk), gather_bytes_(shape.gather_bytes) {}

  template <int Strips>
  __device__ __forceinline__ void next(const ProductArgs& args, const std::byte* own_fragments,
                                       PieceView& view) {
    if (piece_ == pieces_) {
      walk_.open_group();
      piece_ = 0;
      pieces_ = args.matrices[walk_.matrix()].view.piece_count;
    }
    const ProductMatrix& matrix = args.matrices[walk_.matrix()];
    const CodeMatrixView& m = matrix.view;
    const Piece piece = m.pieces[piece_];
    view.flags = walk_.flags(piece_++, pieces_);
    view.chunks = piece.chunks;
    view.matrix = walk_.matrix();
    view.readable = strips().count;
    view.chunk_words = reinterpret_cast<const uint4*>(m.chunks + piece.first_chunk);
    view.scale_stride = static_cast<int>(scale_stride(m.kind, m.groups));
    view.scales = m.scales + strips().first * std::int64_t{view.scale_stride};
    view.codes = m.codes + strips().first * m.strip_bytes;
    view.code_stride = static_cast<int>(m.strip_bytes);
    view.token_stride = m.units * kFragmentBytes;
    view.fragments = matrix.fragments == nullptr
                         ? own_fragments + matrix.gather * gather_bytes_
                         : reinterpret_cast<const std::byte*>(matrix.fragments) +
                               args.first_token * view.token_stride;
  }
  __device__ __forceinline__ PieceStrips strips() const { return walk_.strips(); }
  __device__ __forceinline__ void release() {}

 private:
  PieceWalk walk_;
  int gather_bytes_;
  int piece_ = 0;
  int pieces_ = 0;
};

#endif

}  // namespace bl::cuda
