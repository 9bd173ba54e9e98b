#pragma once
// The ring of the product of one token, made for the least work an entry of the warp that issues
// copies, and the least between the beginning of a launch and its first copy: shares and pieces
// come as parameters, a lane works out an entry for all, places in the ring have one length. Bulk
// copies are issued one after the other, so only codes come that way; scales come 16 bytes a lane,
// into room that bulk copies never write, so that nothing has to be fenced. Chunks are not copied
// at all: they are the same for every strip and lie in shared memory from the beginning
// (token_product.cu).

#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/product/piece_ring.cuh"

namespace bl::cuda {

// Places of a ring and what they hold, in bytes.
struct TokenRingShape {
  int slots = 0;
  int scale_room = 0;   // in front of the codes
  int slot_bytes = 0;   // both
  int most_joined = 1;  // pieces of a single strip
  // Entries that are asked for before the row has been read: more of them stand in its way, and
  // what is not there in time costs less than a late row (bench/ladder/exl2_gemv).
  int early = 1;
};

// What would take two loads one behind the other before the first copy can be asked for.
struct TokenPlan {
  static constexpr int kMostShares = 192;
  static constexpr int kMostPieces = 16;
  const std::int32_t* far_begins = nullptr;   // where there are more shares
  std::int32_t begins[kMostShares + 1] = {};  // of shares
  Piece pieces[kMaxMatrices][kMostPieces];    // of matrices that have no more

  __device__ __forceinline__ int begin(unsigned share) const {
    return far_begins != nullptr ? __ldg(far_begins + share) : begins[share];
  }
};

// The multiplying threads have read the row; the producing warp waits for it.
__device__ __forceinline__ void row_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("bar.arrive 2, %0;" ::"n"(kProductThreads + 32) : "memory");
#endif
}
__device__ __forceinline__ void row_wait() {
  asm volatile("bar.sync 2, %0;" ::"n"(kProductThreads + 32) : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class TokenRing {
 public:
  // `memory`: headers, then places.
  __device__ TokenRing(const TokenRingShape& shape, std::byte* memory, std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        places_(counted_from(memory + RingShape::kHeadersBytes)),
        filled_(barriers),
        free_(barriers + kMaxRingSlots) {}

  // By one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < kMaxRingSlots; ++i) {
      barrier_init(filled_ + i, 1 + 32);  // bulk copies, and each lane's small ones
      barrier_init(free_ + i, kProductWarps * 32);
    }
    barrier_init_fence();
  }

  // By the producing warp: the pieces of a share.
  __device__ void produce(const ProductArgs& args, const TokenPlan& plan, PieceWalk walk) {
    policy_ = read_once();
    int early = shape_.early;
    Batch batch(args, walk, shape_.most_joined);
    uint4 first = batch.piece(plan, batch.first_piece());
    uint4 last = batch.piece(plan, batch.last_piece());
    while (true) {
      const LaneEntry mine(args, batch, shape_, joined_piece(first, last));
      const Lane lane(args, batch);
      const int strips = batch.strips().count;
      const int entries = batch.entries();
      // What comes next is asked for before this is brought.
      const bool more = batch.advance(args);
      if (more) {
        first = batch.piece(plan, batch.first_piece());
        last = batch.piece(plan, batch.last_piece());
      }
#pragma unroll 1
      for (int i = 0; i < entries; ++i) {
        if (early-- == 0) row_wait();
        if (is_full_) barrier_wait(free_ + slot_, phase_ ^ 1u);
        issue(lane, mine, strips, i);
        if (next_slot()) is_full_ = true;
      }
      if (!more) break;
    }
    if (early >= 0) row_wait();
  }

  // Waits for the next entry: its chunks in bits 0 to 7, flags from bit 16 on.
  __device__ __forceinline__ std::uint32_t wait() {
    barrier_wait(filled_ + slot_, phase_);
    return header(slot_)->word;
  }
  // That entry, for a multiplying warp; what the token is made of lies at `input`, chunks at
  // `tables`.
  __device__ __forceinline__ void view(const std::byte* input, const std::byte* tables,
                                       PieceView& view) const {
    const auto* words = reinterpret_cast<const int4*>(header(slot_));
    const int4 head = words[0];
    const int4 more = words[1];
    const std::byte* place = places_ + slot_ * shape_.slot_bytes;
    view.chunks = head.x & 0xff;
    view.strips = head.x >> 8 & 0xf;
    view.matrix = head.x >> 12 & 0xf;
    view.flags = head.x >> 16;
    view.codes = place + head.y;
    view.scales = place + head.z;
    view.chunk_words = reinterpret_cast<const uint4*>(tables + head.w);
    view.code_stride = more.x;
    view.scale_stride = more.y;
    view.fragments = input + more.z;
    view.unit_stride = 0;
  }
  // Of the entry that was not released yet.
  __device__ __forceinline__ PieceStrips strips() const {
    const EntryHeader* of = header(slot_);
    return {of->first_strip, static_cast<int>(of->word >> 8 & 0xf)};
  }
  // The entry has been used by this warp.
  __device__ __forceinline__ void release() {
    // Every lane for itself: one for all behind __syncwarp() is as good, but racecheck cannot
    // follow.
    barrier_arrive(free_ + slot_);
    next_slot();
  }

 private:
  // What an entry says of itself.
  struct alignas(16) EntryHeader {
    std::uint32_t word;         // chunks, strips, matrix, flags
    std::int32_t codes_from;    // to be added to a chunk's offset, from the place on
    std::int32_t scales_from;   // to a group's
    std::int32_t chunks_at;     // in the tables
    std::int32_t code_stride;   // between strips
    std::int32_t scale_stride;  // the same
    std::int32_t input_at;      // of the matrix's gather
    std::int32_t first_strip;
  };
  static_assert(sizeof(EntryHeader) <= RingShape::kHeaderBytes);

  // True where the ring begins anew.
  __device__ __forceinline__ bool next_slot() {
    if (++slot_ < shape_.slots) return false;
    slot_ = 0;
    phase_ ^= 1u;
    return true;
  }
  __device__ __forceinline__ EntryHeader* header(int slot) const {
    return reinterpret_cast<EntryHeader*>(headers_ + slot * RingShape::kHeaderBytes);
  }
  // Up to 32 entries of a group of strips, a lane each.
  class Batch {
   public:
    __device__ __forceinline__ Batch(const ProductArgs& args, const PieceWalk& walk,
                                     int most_joined)
        : walk_(walk), most_joined_(most_joined) {
      walk_.open_group();
      open(args);
    }
    __device__ __forceinline__ int matrix() const { return walk_.matrix(); }
    __device__ __forceinline__ PieceStrips strips() const { return walk_.strips(); }
    __device__ __forceinline__ int entries() const { return min(entries_ - at_, 32); }
    // Of this lane's entry.
    __device__ __forceinline__ int first_piece() const {
      return min((at_ + lane_index()) * joined_, pieces_ - 1);
    }
    __device__ __forceinline__ int last_piece() const {
      return min((at_ + lane_index() + 1) * joined_, pieces_) - 1;
    }
    __device__ __forceinline__ int flags() const {
      if (at_ + lane_index() + 1 != entries_) return 0;
      return kEndsStrips | (walk_.is_last() ? kEndsShare : 0);
    }
    __device__ __forceinline__ uint4 piece(const TokenPlan& plan, int index) const {
      if (pieces_ <= TokenPlan::kMostPieces) {
        return *reinterpret_cast<const uint4*>(&plan.pieces[matrix()][index]);
      }
      return __ldg(words_ + index);
    }
    // False where there is none left.
    __device__ __forceinline__ bool advance(const ProductArgs& args) {
      at_ += 32;
      if (at_ < entries_) return true;
      if (!walk_.open_group()) return false;
      open(args);
      return true;
    }

   private:
    static constexpr int kMost = 255 / kMaxPieceUnits;  // a Piece counts in bytes

    __device__ __forceinline__ void open(const ProductArgs& args) {
      const CodeMatrixView& m = args.matrices[matrix()].view;
      words_ = reinterpret_cast<const uint4*>(m.pieces);
      pieces_ = m.piece_count;
      joined_ = max(min(most_joined_ / strips().count, kMost), 1);
      entries_ = (pieces_ + joined_ - 1) / joined_;
      at_ = 0;
    }
    PieceWalk walk_;
    const uint4* words_ = nullptr;
    int most_joined_;
    int pieces_ = 0;
    int joined_ = 1;
    int entries_ = 0;  // of the group
    int at_ = 0;
  };

  // What a lane knows of its entry of a batch.
  struct LaneEntry {
    uint4 header[2];
    std::uint32_t codes_from;  // bytes from the strip's start
    std::uint32_t codes;       // of a strip
    std::uint32_t scales_from;
    std::uint32_t scales;

    __device__ __forceinline__ LaneEntry(const ProductArgs& args, const Batch& batch,
                                         const TokenRingShape& shape, const Piece& piece) {
      const ProductMatrix& of = args.matrices[batch.matrix()];
      const auto scale = static_cast<std::uint32_t>(scale_bytes(of.view.kind));
      codes_from = piece.offset * 64u;
      codes = piece.size * 64u;
      scales_from = piece.first_group * scale / 16 * 16;
      scales = ((piece.first_group + piece.groups) * scale + 15) / 16 * 16 - scales_from;
      const auto strips = static_cast<unsigned>(batch.strips().count);
      header[0].x = piece.chunks | strips << 8 | static_cast<unsigned>(batch.matrix()) << 12 |
                    static_cast<unsigned>(batch.flags()) << 16;
      header[0].y = static_cast<std::uint32_t>(shape.scale_room) - codes_from;
      header[0].z = 0u - scales_from;
      header[0].w = static_cast<std::uint32_t>(of.chunks_at) + piece.first_chunk * 16u;
      header[1].x = codes;
      header[1].y = scales;
      header[1].z = static_cast<std::uint32_t>(of.gather * args.gather_bytes);
      header[1].w = static_cast<std::uint32_t>(batch.strips().first);
    }
  };

  // What a lane copies of every entry of a group, which has four strips at most: the codes of strip
  // `lane`, and every eighth 16 bytes of the scales of strip lane / 8.
  struct Lane {
    static constexpr int kPerStrip = 8;
    const std::byte* codes;
    const std::byte* scales;
    __device__ __forceinline__ Lane(const ProductArgs& args, const Batch& batch) {
      const CodeMatrixView& m = args.matrices[batch.matrix()].view;
      const PieceStrips strips = batch.strips();
      codes = m.codes + (strips.first + lane_index()) * m.strip_bytes;
      scales = m.scales +
               (strips.first + lane_index() / kPerStrip) * scale_stride(m.kind, m.groups) +
               lane_index() % kPerStrip * 16;
    }
  };

  // Entry `index` of the batch into the next place.
  __device__ __forceinline__ void issue(const Lane& lane, const LaneEntry& mine, int strips,
                                        int index) {
    std::uint64_t* barrier = filled_ + slot_;
    std::byte* place = places_ + slot_ * shape_.slot_bytes;
    const std::uint32_t codes_from = __shfl_sync(kAllLanes, mine.codes_from, index);
    const auto codes = static_cast<int>(__shfl_sync(kAllLanes, mine.codes, index));
    if (lane_index() == index) {
      auto* words = reinterpret_cast<uint4*>(header(slot_));
      words[0] = mine.header[0];
      words[1] = mine.header[1];
      barrier_expect(barrier, strips * codes);
    }
    __syncwarp();
    if (lane_index() < strips) {
      bulk_copy(place + shape_.scale_room + lane_index() * codes, lane.codes + codes_from, codes,
                barrier, policy_);
    }
    __syncwarp();
    const auto scales = static_cast<int>(__shfl_sync(kAllLanes, mine.scales, index));
    const std::byte* from = lane.scales + __shfl_sync(kAllLanes, mine.scales_from, index);
    const int strip = lane_index() / Lane::kPerStrip;
    if (strip < strips) {
      std::byte* to = place + strip * scales;
#pragma unroll 1
      for (int i = lane_index() % Lane::kPerStrip * 16; i < scales; i += Lane::kPerStrip * 16) {
        copy_small(to + i, from, policy_);
        from += Lane::kPerStrip * 16;
      }
    }
    barrier_arrive_behind_copies(barrier);
  }

  const TokenRingShape& shape_;
  std::byte* headers_;
  std::byte* places_;
  std::uint64_t* filled_;
  std::uint64_t* free_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
  std::uint64_t policy_ = 0;  // of weights; the producer's
  bool is_full_ = false;      // the producer's: places have to be waited for
};

#else

// The same over the pieces where they lie.
class TokenRing {
 public:
  __device__ TokenRing(const ProductArgs& args, const PieceWalk& walk)
      : args_(args), ring_(RingShape{}, walk) {}
  __device__ __forceinline__ std::uint32_t wait() {
    ring_.next(args_, nullptr, view_);
    return static_cast<std::uint32_t>(view_.chunks) | static_cast<std::uint32_t>(view_.flags) << 16;
  }
  __device__ __forceinline__ void view(const std::byte* input, const std::byte*,
                                       PieceView& view) const {
    view = view_;
    view.fragments = input + args_.matrices[view.matrix].gather * args_.gather_bytes;
  }
  __device__ __forceinline__ PieceStrips strips() const { return ring_.strips(); }
  __device__ __forceinline__ void release() {}

 private:
  const ProductArgs& args_;
  PieceRing<false> ring_;
  PieceView view_;
};

#endif

}  // namespace bl::cuda
