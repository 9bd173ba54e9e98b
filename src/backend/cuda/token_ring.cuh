#pragma once
// The ring of the product of one token: as piece_ring.cuh has it, but without activations, and made
// for the least work an entry of the warp that issues copies, which is what limits wide products.
// Bulk copies are issued by one lane after the other, so only codes come that way; scales and
// chunks come 16 bytes a lane.

#include "backend/cuda/piece_ring.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class TokenRing {
 public:
  // `memory`: headers, then entries.
  __device__ TokenRing(const RingShape& shape, std::byte* memory, std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        entries_(counted_from(memory + RingShape::kHeadersBytes)),
        filled_(barriers),
        free_(barriers + kMaxRingSlots),
        space_(shape.bytes, kMaxRingSlots) {}

  // By one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < kMaxRingSlots; ++i) {
      barrier_init(filled_ + i, 1 + 32);  // bulk copies, and each lane's small ones
      barrier_init(free_ + i, kProductWarps * 32);
    }
    barrier_init_fence();
  }

  // By the producing warp: the pieces of a share.
  __device__ void produce(const ProductArgs& args, PieceWalk walk) {
    bool more = walk.open_group();
    if (!more) return;
    Lane lane(args, walk);
    PieceRun run(args, walk, shape_.most_joined);
    uint4 first = __ldg(run.first());
    uint4 last = __ldg(run.last());
    while (more) {
      const Entry entry(lane, joined_piece(first, last));
      const int at = make_place(entry.bytes);
      // What comes next, be it of another group, is asked for before this is brought.
      const bool ends = run.advance();
      const int flags = ends ? walk.flags(0, 1) : 0;
      if (ends) {
        more = walk.open_group();
        if (more) run = PieceRun(args, walk, shape_.most_joined);
      }
      if (more) {
        first = __ldg(run.first());
        last = __ldg(run.last());
      }
      issue_codes(lane, entry, flags, at);
      issue_small(lane, entry, at);
      next_slot();
      if (ends && more) lane = Lane(args, walk);
    }
  }

  // The next entry, for a multiplying warp; what the token is made of lies at `own_fragments`.
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
    view.fragments = own_fragments + head.w;
    view.unit_stride = 0;
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
  __device__ __forceinline__ void next_slot() {
    if (++slot_ == kMaxRingSlots) {
      slot_ = 0;
      phase_ ^= 1u;
    }
  }
  __device__ __forceinline__ EntryHeader* header(int slot) const {
    return reinterpret_cast<EntryHeader*>(headers_) + slot;
  }
  // The pieces of a group that make an entry each time.
  class PieceRun {
   public:
    __device__ __forceinline__ PieceRun(const ProductArgs& args, const PieceWalk& walk,
                                        int most_joined) {
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      const int strips = walk.strips().count;
      words_ = reinterpret_cast<const uint4*>(m.pieces);
      pieces_ = m.piece_count;
#pragma unroll 1
      while (joined_ < kMost && (joined_ + 1) * strips <= most_joined) ++joined_;
    }
    __device__ __forceinline__ const uint4* first() const { return words_ + at_; }
    __device__ __forceinline__ const uint4* last() const {
      return words_ + min(at_ + joined_, pieces_) - 1;
    }
    // To the next entry; true where there is none.
    __device__ __forceinline__ bool advance() {
      at_ += joined_;
      return at_ >= pieces_;
    }

   private:
    static constexpr int kMost = 255 / kMaxPieceUnits;  // a Piece counts in bytes
    const uint4* words_;
    int pieces_;
    int joined_ = 1;
    int at_ = 0;
  };

  // From the first of a run of pieces to its last one.
  __device__ __forceinline__ static Piece joined_piece(const uint4& first, const uint4& last) {
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

  // What one lane copies of every piece of a group, which has eight strips at most: the codes of
  // strip `lane` as a whole; every fourth 16 bytes of the scales of strip lane / 4, and every 32nd
  // of the chunks.
  struct Lane {
    static constexpr int kPerStrip = 4;
    const std::byte* codes = nullptr;
    const std::byte* scales = nullptr;
    const std::byte* chunks = nullptr;
    int scale_bytes = 0;
    int matrix = 0;
    PieceStrips strips;
    int fragments_from = 0;  // of a CTA's own

    __device__ __forceinline__ Lane(const ProductArgs& args, const PieceWalk& walk)
        : matrix(walk.matrix()), strips(walk.strips()) {
      const ProductMatrix& of = args.matrices[matrix];
      const CodeMatrixView& m = of.view;
      const int lane = lane_index();
      scale_bytes = cuda::scale_bytes(m.kind);
      fragments_from = of.gather * args.gather_bytes;
      codes = m.codes + (strips.first + lane) * m.strip_bytes;
      scales = m.scales + (strips.first + lane / kPerStrip) * scale_stride(m.kind, m.groups) +
               lane % kPerStrip * 16;
      chunks = reinterpret_cast<const std::byte*>(m.chunks) + lane * 16;
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
    int bytes;
    __device__ __forceinline__ Entry(const Lane& lane, const Piece& of)
        : piece(of),
          chunks(of.chunks * static_cast<int>(sizeof(Chunk))),
          first_scale(of.first_group * lane.scale_bytes / 16 * 16),
          scales(((of.first_group + of.groups) * lane.scale_bytes + 15) / 16 * 16 - first_scale),
          codes(of.size * 64),
          codes_at(RingShape::rounded(chunks + lane.strips.count * scales)),
          bytes(RingShape::rounded(codes_at + lane.strips.count * codes)) {}
  };

  // Waits until the oldest entries have made room; returns the place.
  __device__ __forceinline__ int make_place(int bytes) {
    while (!space_.fits(bytes)) {
      barrier_wait(free_ + oldest_, oldest_phase_);
      bulk_copy_fence();  // small copies may have been where bulk copies come now
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

  // The codes, with the header.
  __device__ __forceinline__ void issue_codes(const Lane& lane, const Entry& entry, int flags,
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
      header.fragments_from = lane.fragments_from;
      header.first_unit = piece.first_unit;
      header.units = piece.units;
      header.code_stride = entry.codes;
      header.scale_stride = entry.scales;
      header.chunks_at = at;
      header.first_strip = lane.strips.first;
      header.strips = lane.strips.count;
      *this->header(slot_) = header;
      barrier_expect(barrier, lane.strips.count * entry.codes);
    }
    __syncwarp();
    std::byte* to = entries_ + at;
    const int number = lane_index();
    if (number < lane.strips.count) {
      bulk_copy(to + entry.codes_at + number * entry.codes,
                lane.codes + std::int64_t{piece.offset} * 64, entry.codes, barrier);
    }
    __syncwarp();
  }
  // Scales and chunks.
  __device__ __forceinline__ void issue_small(const Lane& lane, const Entry& entry, int at) {
    const Piece& piece = entry.piece;
    std::byte* to = entries_ + at;
    const int number = lane_index();
    const int strip = number / Lane::kPerStrip;
    if (strip < lane.strips.count) {
      std::byte* scales = to + entry.chunks + strip * entry.scales;
      const std::byte* from = lane.scales + entry.first_scale;
#pragma unroll 1
      for (int i = number % Lane::kPerStrip * 16; i < entry.scales; i += Lane::kPerStrip * 16) {
        copy_small(scales + i, from);
        from += Lane::kPerStrip * 16;
      }
    }
    const std::byte* chunks = lane.chunks + piece.first_chunk * 16;
#pragma unroll 1
    for (int i = number * 16; i < entry.chunks; i += 32 * 16) {
      copy_small(to + i, chunks);
      chunks += 32 * 16;
    }
    barrier_arrive_behind_copies(filled_ + slot_);
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

using TokenRing = PieceRing<false>;

#endif

}  // namespace bl::cuda
