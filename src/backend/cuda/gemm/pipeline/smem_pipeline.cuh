#pragma once
// The pieces of a CTA's strips on their way into shared memory: one warp issues bulk copies, the
// others multiply what has come. Weights never wait for the kernel before; activations that travel
// with them do.
//
// Where there are no bulk copies (compute capability below 9) the multiplying warps walk over the
// same pieces and read them where they lie.

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/pipeline/pipeline_shape.h"
#include "backend/cuda/gemm/pipeline/stage_allocator.h"

namespace bl::cuda {

// What an entry says of itself; places count from the ring's beginning.
struct alignas(16) EntryHeader {
  std::uint8_t chunks = 0;
  std::uint8_t matrix = 0;
  std::uint16_t flags = 0;
  // To be added to a chunk's offset and to its group's place.
  std::int32_t codes_from = 0;
  std::int32_t scales_from = 0;
  std::int32_t fragments_from = 0;  // where unit 0 of the first token would be

  std::int32_t code_stride = 0;  // between strips
  std::int32_t scale_stride = 0;
  std::int32_t chunks_at = 0;
  std::int32_t strips = 0;

  std::int32_t first_strip = 0;  // of the matrix
  std::int32_t fragments_at = 0;
  std::uint16_t first_unit = 0;
  std::uint16_t units = 0;
  std::int32_t unused = 0;
};
static_assert(sizeof(EntryHeader) == RingShape::kHeaderBytes);
inline constexpr int kEndsStrips = 1;
inline constexpr int kEndsShare = 2;

// The strips that a piece is of.
struct PieceStrips {
  int first = 0;  // of the matrix
  int count = 0;
};

// From the first of a run of pieces to its last one.
__device__ __forceinline__ Piece joined_piece(const uint4& first, const uint4& last) {
  Piece piece;
  Piece end;
  *reinterpret_cast<uint4*>(&piece) = first;
  *reinterpret_cast<uint4*>(&end) = last;
  piece.size = static_cast<std::uint16_t>(end.offset + end.size - piece.offset);
  piece.units = static_cast<std::uint8_t>(end.first_unit + end.units - piece.first_unit);
  piece.chunks = static_cast<std::uint8_t>(end.first_chunk + end.chunks - piece.first_chunk);
  piece.groups = static_cast<std::uint8_t>(end.first_group + end.groups - piece.first_group);
  return piece;
}

// Follows the pieces of a share: strips in groups of at most `at_once`, of one matrix each, every
// group piece by piece. Gated products take a group of the first matrix, then the same strips of
// the second.
class PieceWalk {
 public:
  __device__ PieceWalk(const ProductArgs& args, int begin, int end, int at_once)
      : args_(&args), at_(begin), end_(end), at_once_(at_once), matrix_(args.gated ? 1 : 0) {}

  // The next group; false where there is none left.
  __device__ __forceinline__ bool open_group() {
    if (args_->gated && matrix_ == 0) {
      matrix_ = 1;
    } else {
      at_ += strips_;
      if (at_ >= end_) return false;
      int limit = end_;
      if (args_->gated) {
        matrix_ = 0;
      } else {
        while (at_ >= strips_before_ + args_->matrices[matrix_].view.strips) {
          strips_before_ += args_->matrices[matrix_++].view.strips;
        }
        limit = min(end_, strips_before_ + args_->matrices[matrix_].view.strips);
      }
      strips_ = min(at_once_, limit - at_);
    }
    return true;
  }
  __device__ __forceinline__ const ProductArgs& args() const { return *args_; }
  __device__ __forceinline__ int matrix() const { return matrix_; }
  __device__ __forceinline__ PieceStrips strips() const { return {at_ - strips_before_, strips_}; }
  __device__ __forceinline__ bool is_last() const {
    return at_ + strips_ >= end_ && (!args_->gated || matrix_ == 1);
  }
  // Of the group's piece `index` of `pieces`.
  __device__ __forceinline__ int flags(int index, int pieces) const {
    if (index + 1 < pieces) return 0;
    return kEndsStrips | (is_last() ? kEndsShare : 0);
  }

 private:
  const ProductArgs* args_;
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
  int strips = 0;
  const uint4* chunk_words = nullptr;  // a Chunk each
  const std::byte* scales = nullptr;   // where group 0 of the first strip would be
  int scale_stride = 0;                // between strips
  const std::byte* codes = nullptr;    // where the first strip would begin
  int code_stride = 0;
  const std::byte* fragments = nullptr;  // where unit 0 of the first token would be
  int unit_stride = 0;                   // of fragments
};

// The prepared activations of a launch's tokens, of unit 0: unit by unit, those of all its tokens
// together.
__device__ __forceinline__ const std::byte* first_fragments(const ProductArgs& args,
                                                            const ProductMatrix& m) {
  return reinterpret_cast<const std::byte*>(m.fragments) +
         args.first_token * m.view.units * kFragmentBytes;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// kFragments: activations travel with the weights, of shape.tokens tokens; else the multiplying
// warps have them.
template <bool kFragments>
class PieceRing {
 public:
  // `memory`: headers, then entries.
  __device__ PieceRing(const RingShape& shape, std::byte* memory, std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        entries_(memory + RingShape::kHeadersBytes),
        filled_(barriers),
        free_(barriers + kMaxRingSlots),
        space_(shape.bytes, kMaxRingSlots) {}

  // By one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < kMaxRingSlots; ++i) {
      barrier_init(filled_ + i, 1);
      barrier_init(free_ + i, kProductWarps * 32);
    }
    barrier_init_fence();
  }

  // By the producing warp: the pieces of a share. Fragments wait for the kernel before; weights do
  // not, but what is asked for early stands in the way of that kernel: one entry is
  // (bench/ladder/few_tokens).
  __device__ void produce(const ProductArgs& args, PieceWalk walk) {
    const int first_slot = slot_;
    bool behind_is_done = !kFragments;
    int issued = 0;
    while (walk.open_group()) {
      const int joined = max(shape_.most_joined / walk.strips().count, 1);
      const Lane lane(args, walk);
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      const auto* words = reinterpret_cast<const uint4*>(m.pieces);
      const int pieces = m.piece_count;
      uint4 first = __ldg(words);
      uint4 last = __ldg(words + min(joined, pieces) - 1);
      for (int i = 0; i < pieces; i += joined) {
        const Entry entry(lane, joined_piece(first, last), fragment_bytes());
        first = __ldg(words + min(i + joined, pieces - 1));
        last = __ldg(words + min(i + 2 * joined, pieces) - 1);
        if (!behind_is_done && (issued == kEarlyEntries || !space_.fits(entry.bytes))) {
          issue_first_fragments(args, first_slot, issued);
          behind_is_done = true;
        }
        const int at = make_place(entry.bytes);
        issue_weights(lane, entry, walk.flags(i + joined - 1, pieces), at);
        if (kFragments && behind_is_done) issue_fragments(args, slot_);
        ++issued;
        next_slot();
      }
    }
    if (!behind_is_done) issue_first_fragments(args, first_slot, issued);
  }

  // The next entry, for a multiplying warp; fragments are those that came with it, or lie at
  // `own_fragments`.
  __device__ __forceinline__ void next(const ProductArgs&, const std::byte* own_fragments,
                                       PieceView& view) {
    barrier_wait(filled_ + slot_, phase_);
    const auto* words = reinterpret_cast<const int4*>(header(slot_));
    const int4 head = words[0];
    const int4 more = words[1];
    view.chunks = head.x & 0xff;
    view.matrix = head.x >> 8 & 0xff;
    view.flags = head.x >> 16;
    view.codes = entries_ + head.y;
    view.scales = entries_ + head.z;
    view.code_stride = more.x;
    view.scale_stride = more.y;
    view.chunk_words = reinterpret_cast<const uint4*>(entries_ + more.z);
    view.strips = more.w;
    view.fragments = (kFragments ? entries_ : own_fragments) + head.w;
    view.unit_stride = fragment_bytes();
  }
  // Of the entry that was not released yet.
  __device__ __forceinline__ PieceStrips strips() const {
    const EntryHeader* of = header(slot_);
    return {of->first_strip, of->strips};
  }
  // The entry has been used by this warp.
  __device__ __forceinline__ void release() {
    // Every lane for itself: one for all behind __syncwarp() is as good, but racecheck cannot
    // follow.
    barrier_arrive(free_ + slot_);
    next_slot();
  }

 private:
  static constexpr int kEarlyEntries = 1;  // whose weights are asked for before any fragments

  __device__ __forceinline__ void next_slot() {
    if (++slot_ == kMaxRingSlots) {
      slot_ = 0;
      phase_ ^= 1u;
    }
  }
  __device__ __forceinline__ EntryHeader* header(int slot) const {
    return reinterpret_cast<EntryHeader*>(headers_) + slot;
  }
  // What one lane copies of every piece of a group: the codes or the scales of a strip, or the
  // chunks; the groups of strips have eight at most.
  struct Lane {
    enum Role { kCodes, kScales, kChunks, kNothing };
    Role role = kNothing;
    const std::byte* from = nullptr;
    int strip = 0;  // of the group
    int scale_bytes = 0;
    int matrix = 0;
    PieceStrips strips;
    int fragments_from = 0;  // of a CTA's own

    __device__ __forceinline__ Lane(const ProductArgs& args, const PieceWalk& walk)
        : strip(lane_index() % 8), matrix(walk.matrix()), strips(walk.strips()) {
      const ProductMatrix& of = args.matrices[matrix];
      const CodeMatrixView& m = of.view;
      const int lane = lane_index();
      scale_bytes = cuda::scale_bytes(m.kind);
      fragments_from = of.gather * args.gather_bytes;
      if (lane < strips.count) {
        role = kCodes;
        from = m.codes + (strips.first + strip) * m.strip_bytes;
      } else if (lane >= 8 && lane < 8 + strips.count) {
        role = kScales;
        from = m.scales + (strips.first + strip) * scale_stride(m.kind, m.groups);
      } else if (lane == 16) {
        role = kChunks;
        from = reinterpret_cast<const std::byte*>(m.chunks);
      }
    }
  };

  // The parts of an entry, in bytes, and where they begin in it.
  struct Entry {
    Piece piece;
    int chunks;
    int first_scale;  // of the strip's, rounded down for the copy
    int scales;       // of a strip
    int codes;        // of a strip
    int codes_at;
    int fragments_at;
    int bytes;
    __device__ __forceinline__ Entry(const Lane& lane, const Piece& of, int fragment_bytes)
        : piece(of),
          chunks(of.chunks * static_cast<int>(sizeof(Chunk))),
          first_scale(of.first_group * lane.scale_bytes / 16 * 16),
          scales(((of.first_group + of.groups) * lane.scale_bytes + 15) / 16 * 16 - first_scale),
          codes(of.size * 64),
          codes_at(RingShape::rounded(chunks + lane.strips.count * scales)),
          fragments_at(codes_at + lane.strips.count * codes),
          bytes(RingShape::rounded(fragments_at + of.units * fragment_bytes)) {}
  };

  // Waits until the oldest entries have made room; returns the place.
  __device__ __forceinline__ int make_place(int bytes) {
    while (!space_.fits(bytes)) {
      barrier_wait(free_ + oldest_, oldest_phase_);
      space_.release(__shfl_sync(kAllLanes, taken_, oldest_));
      if (++oldest_ == kMaxRingSlots) {
        oldest_ = 0;
        oldest_phase_ ^= 1u;
      }
    }
    const RingSpace::Place place = space_.place(bytes);
    if (lane_index() == slot_) taken_ = place.taken;
    return place.at;
  }

  // Accounts for all that comes in the entry, fragments included.
  __device__ __forceinline__ void issue_weights(const Lane& lane, const Entry& entry, int flags,
                                                int at) {
    const Piece& piece = entry.piece;
    std::uint64_t* barrier = filled_ + slot_;
    if (lane_index() == 0) {
      EntryHeader header;
      header.chunks = piece.chunks;
      header.matrix = static_cast<std::uint8_t>(lane.matrix);
      header.flags = static_cast<std::uint16_t>(flags);
      header.codes_from = at + entry.codes_at - static_cast<int>(piece.offset) * 64;
      header.scales_from = at + entry.chunks - entry.first_scale;
      header.fragments_at = at + entry.fragments_at;
      header.fragments_from = kFragments ? header.fragments_at - piece.first_unit * fragment_bytes()
                                         : lane.fragments_from;
      header.first_unit = piece.first_unit;
      header.units = piece.units;
      header.code_stride = entry.codes;
      header.scale_stride = entry.scales;
      header.chunks_at = at;
      header.first_strip = lane.strips.first;
      header.strips = lane.strips.count;
      *this->header(slot_) = header;
      barrier_expect(barrier, entry.chunks + lane.strips.count * (entry.scales + entry.codes) +
                                  piece.units * fragment_bytes());
    }
    __syncwarp();
    std::byte* to = entries_ + at;
    if (lane.role == Lane::kCodes) {
      bulk_copy(to + entry.codes_at + lane.strip * entry.codes,
                lane.from + std::int64_t{piece.offset} * 64, entry.codes, barrier, read_once());
    } else if (lane.role == Lane::kScales) {
      bulk_copy(to + entry.chunks + lane.strip * entry.scales, lane.from + entry.first_scale,
                entry.scales, barrier, read_once());
    } else if (lane.role == Lane::kChunks) {
      bulk_copy(to, lane.from + piece.first_chunk * 16, entry.chunks, barrier);
    }
  }

  // All tokens' of an entry, which lie together.
  __device__ __forceinline__ void issue_fragments(const ProductArgs& args, int slot) {
    __syncwarp();
    if (lane_index() == 0) {
      const EntryHeader& of = *header(slot);
      bulk_copy(entries_ + of.fragments_at,
                first_fragments(args, args.matrices[of.matrix]) +
                    std::int64_t{of.first_unit} * fragment_bytes(),
                of.units * fragment_bytes(), filled_ + slot);
    }
  }

  // Of the entries that filled the ring first.
  __device__ __forceinline__ void issue_first_fragments(const ProductArgs& args, int first_slot,
                                                        int count) {
    dependency_wait();
#pragma unroll 1
    for (int i = 0; i < count; ++i) issue_fragments(args, (first_slot + i) % kMaxRingSlots);
  }
  // Of a unit, of all tokens.
  __device__ __forceinline__ int fragment_bytes() const {
    return kFragments ? shape_.tokens * kFragmentBytes : 0;
  }

  const RingShape& shape_;
  std::byte* headers_;
  std::byte* entries_;
  std::uint64_t* filled_;
  std::uint64_t* free_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
  // The producer's.
  RingSpace space_;
  int taken_ = 0;  // lane i: bytes taken by slot i's entry
  int oldest_ = 0;
  std::uint32_t oldest_phase_ = 0;
};

#else

template <bool kFragments>
class PieceRing {
 public:
  __device__ PieceRing(const RingShape&, const PieceWalk& walk) : walk_(walk) {}

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
    view.strips = strips().count;
    view.chunk_words = reinterpret_cast<const uint4*>(m.chunks + piece.first_chunk);
    view.scale_stride = static_cast<int>(scale_stride(m.kind, m.groups));
    view.scales = m.scales + strips().first * std::int64_t{view.scale_stride};
    view.codes = m.codes + strips().first * m.strip_bytes;
    view.code_stride = static_cast<int>(m.strip_bytes);
    view.unit_stride = args.tokens * kFragmentBytes;
    view.fragments = kFragments ? first_fragments(args, matrix)
                                : own_fragments + matrix.gather * walk_.args().gather_bytes;
  }
  __device__ __forceinline__ PieceStrips strips() const { return walk_.strips(); }
  __device__ __forceinline__ void release() {}

 private:
  PieceWalk walk_;
  int piece_ = 0;
  int pieces_ = 0;
};

#endif

}  // namespace bl::cuda
