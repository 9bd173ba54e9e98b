#pragma once
// The ring of the product of one token, made for the least work an entry of the warp that issues
// copies, and the least between the beginning of a launch and its first copy, which is what a short
// product waits for (bench/ladder/exl2_gemv): shares and pieces come as parameters, the host has
// divided what is to be divided, the warp makes the ring's barriers itself, asks for the first
// codes before it has worked out anything else, and looks for what comes next behind a group's
// first entry. A lane works out an entry for all, places in the ring have one length. Bulk copies
// are issued one after the other, so only codes come that way; scales come 16 bytes a lane, into
// room that bulk copies never write, so that nothing has to be fenced. Chunks are not copied at
// all: they are the same for every strip and lie in shared memory from the beginning
// (token_product.cu).

#include "backend/cuda/prefetch/key_prefetch.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/partition/cta_range_begins.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/prefetch/weight_prefetch.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class TokenRing {
 public:
  // `memory`: headers, then places.
  __device__ TokenRing(const TokenRingShape& shape, std::byte* memory, std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        places_(counted_from(memory + RingShape::kHeadersBytes)),
        filled_(barriers),
        free_(barriers + kMaxRingSlots),
        row_(barriers + 2 * kMaxRingSlots) {}

  // By the producing warp: the pieces of the share of strips [begin, end); `ahead` behind them.
  __device__ void produce(const TokenPlan& plan, int begin, int end, const ReadAhead& ahead) {
    policy_ = read_once();
    bool codes_asked = shape_.early;
    init_slots(0, 1);
    Group now(plan, begin, end);
    if (codes_asked) ask_for_codes(now, now.first_codes(plan), 0);
    init_slots(1, kMaxRingSlots);
    asm volatile("bar.arrive 2, %0;" ::"n"(kProductThreads + 32) : "memory");
    now.describe(plan, shape_);
    while (true) {
      Group next = now;
      bool more = false;
#pragma unroll 1
      for (int i = 0; i < now.entries(); ++i) {
        wait_for_turn();
        issue(now, i, !codes_asked);
        codes_asked = false;
        if (next_slot()) is_full_ = true;
        if (i == 0) more = next.advance(plan, shape_);
      }
      if (!more) break;
      now = next;
    }
    if (ahead.keys.k != nullptr) ask_for_keys(ahead.keys);
    if (ahead.weights.count == 0) return;
    // Where a launch has asked for all of its own long before, rows come first.
    barrier_wait(row_, 0);
    ask_for_weights(ahead.weights);
  }

  // The multiplying threads meet here when they have read the row, and find the barriers made.
  __device__ __forceinline__ void meet() {
    asm volatile("bar.sync 2, %0;" ::"n"(kProductThreads + 32) : "memory");
    if (threadIdx.x == 0) barrier_arrive(row_);
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
  static constexpr int kMostUnderWay = 2;  // entries

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

  // Before anybody waits for the barriers of places [first, end), the row's behind the last.
  __device__ __forceinline__ void init_slots(int first, int end) {
    if (lane_index() == 0) {
#pragma unroll
      for (int i = first; i < end; ++i) {
        barrier_init(filled_ + i, 1 + 32);  // bulk copies, and each lane's small ones
        barrier_init(free_ + i, kProductWarps * 32);
      }
      if (end == kMaxRingSlots) barrier_init(row_, 1);
      barrier_init_fence();
    }
    __syncwarp();
  }
  // Until the next entry may be asked for. Many at once stand in the way of rows, of other CTAs
  // too, and bring none of themselves sooner.
  __device__ __forceinline__ void wait_for_turn() {
    if (is_full_) {
      barrier_wait(free_ + slot_, phase_ ^ 1u);
    } else {
      while (!barrier_test(row_, 0) &&
             !(shape_.early && (slot_ == 0 || barrier_test(filled_ + slot_ - 1, 0)))) {
      }
    }
    const int most = min(kMostUnderWay, shape_.slots);
    if (slot_ >= most) {
      barrier_wait(filled_ + slot_ - most, phase_);
    } else if (is_full_) {
      barrier_wait(filled_ + slot_ - most + shape_.slots, phase_ ^ 1u);
    }
  }
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
  // A group of strips of one matrix, which gated products take of the first matrix, then of the
  // second; and up to 32 of its entries, a lane each.
  class Group {
   public:
    // describe() is left to the caller.
    __device__ __forceinline__ Group(const TokenPlan& plan, int begin, int end)
        : at_(begin), end_(end) {
      open(plan, plan.matrix_of(begin));
    }
    // False where there is nothing left.
    __device__ __forceinline__ bool advance(const TokenPlan& plan, const TokenRingShape& shape) {
      first_ += 32;
      if (first_ >= all_) {
        if (plan.gated && matrix_ == 0) {
          open(plan, 1);
        } else {
          at_ += strips_;
          if (at_ >= end_) return false;
          open(plan, plan.matrix_of(at_));
        }
      }
      describe(plan, shape);
      return true;
    }
    __device__ __forceinline__ int strips() const { return strips_; }
    __device__ __forceinline__ int entries() const { return min(all_ - first_, 32); }
    // Of a strip in the first entry of all, bytes.
    __device__ __forceinline__ int first_codes(const TokenPlan& plan) const {
      return static_cast<int>(plan.sources[matrix_].first_codes[strips_ - 1]);
    }

    uint4 header[2];
    std::uint32_t codes_from;  // bytes from the strip's start
    std::uint32_t codes;       // of a strip
    std::uint32_t scales_from;
    std::uint32_t scales;
    // What it copies of every entry: the codes of strip `lane`, and every eighth 16 bytes of the
    // scales of strip lane / 8.
    static constexpr int kLanesPerStrip = 8;
    const std::byte* strip_codes;
    const std::byte* strip_scales;

    // What the lane has to know of its entry.
    __device__ __forceinline__ void describe(const TokenPlan& plan, const TokenRingShape& shape) {
      const TokenSource& of = plan.sources[matrix_];
      const int entry = first_ + lane_index();
      const int from = min(entry * joined_, of.pieces - 1);
      const int to = min((entry + 1) * joined_, of.pieces) - 1;
      const Piece piece = joined_piece(this->piece(plan, from), this->piece(plan, to));
      const std::uint32_t scale = of.scale_bytes;
      codes_from = piece.offset * 64u;
      codes = piece.size * 64u;
      scales_from = piece.first_group * scale / 16 * 16;
      scales = ((piece.first_group + piece.groups) * scale + 15) / 16 * 16 - scales_from;
      unsigned flags = 0;
      if (entry + 1 == all_) {
        const bool last = at_ + strips_ >= end_ && (!plan.gated || matrix_ == 1);
        flags = last ? kEndsStrips | kEndsShare : kEndsStrips;
      }
      header[0].x = piece.chunks | static_cast<unsigned>(strips_) << 8 |
                    static_cast<unsigned>(matrix_) << 12 | flags << 16;
      header[0].y = static_cast<std::uint32_t>(shape.scale_room) - codes_from;
      header[0].z = 0u - scales_from;
      header[0].w = static_cast<std::uint32_t>(of.chunks_at) +
                    piece.first_chunk * std::uint32_t{of.chunk_bytes};
      header[1].x = codes;
      header[1].y = scales;
      header[1].z = static_cast<std::uint32_t>(of.input_at);
      header[1].w = static_cast<std::uint32_t>(first_strip_);
    }

   private:
    __device__ __forceinline__ void open(const TokenPlan& plan, int matrix) {
      matrix_ = matrix;
      first_ = 0;
      const int before = plan.gated ? 0 : plan.first_strips[matrix];
      const int limit = plan.gated ? end_ : min(end_, plan.first_strips[matrix + 1]);
      strips_ = min(kEntryStrips, limit - at_);
      first_strip_ = at_ - before;
      const TokenSource& of = plan.sources[matrix];
      joined_ = of.joined[strips_ - 1];
      all_ = of.entries[strips_ - 1];
      const auto first = static_cast<unsigned>(first_strip_);
      const auto lane = static_cast<unsigned>(lane_index());
      strip_codes = of.codes + std::uint64_t{first + lane} * of.strip_bytes;
      strip_scales = of.scales + std::uint64_t{first + lane / kLanesPerStrip} * of.scale_stride +
                     lane % kLanesPerStrip * 16;
    }
    __device__ __forceinline__ uint4 piece(const TokenPlan& plan, int index) const {
      const Piece* far = plan.sources[matrix_].far_pieces;
      if (far == nullptr) return *reinterpret_cast<const uint4*>(&plan.pieces[matrix_][index]);
      return __ldg(reinterpret_cast<const uint4*>(far) + index);
    }
    int at_;
    int end_;
    int matrix_ = 0;
    int strips_ = 0;
    int first_strip_ = 0;  // of the matrix
    int joined_ = 1;       // pieces of an entry
    int all_ = 0;          // entries of the group
    int first_ = 0;        // of the lanes'
  };

  // `bytes` of every strip's codes, from byte `from` of a strip, into the next place.
  __device__ __forceinline__ void ask_for_codes(const Group& group, int bytes, std::uint32_t from) {
    if (lane_index() >= group.strips()) return;
    std::byte* place = places_ + slot_ * shape_.slot_bytes + shape_.scale_room;
    bulk_copy(place + lane_index() * bytes, group.strip_codes + from, bytes, filled_ + slot_,
              policy_);
  }
  // Entry `index` of the group's into the next place; `codes_too`: they have not been asked for.
  __device__ __forceinline__ void issue(const Group& group, int index, bool codes_too) {
    std::uint64_t* barrier = filled_ + slot_;
    std::byte* place = places_ + slot_ * shape_.slot_bytes;
    const int strips = group.strips();
    const std::uint32_t codes_from = __shfl_sync(kAllLanes, group.codes_from, index);
    const auto codes = static_cast<int>(__shfl_sync(kAllLanes, group.codes, index));
    if (lane_index() == index) {
      auto* words = reinterpret_cast<uint4*>(header(slot_));
      words[0] = group.header[0];
      words[1] = group.header[1];
      barrier_expect(barrier, strips * codes);
    }
    __syncwarp();
    if (codes_too) ask_for_codes(group, codes, codes_from);
    __syncwarp();
    const auto scales = static_cast<int>(__shfl_sync(kAllLanes, group.scales, index));
    const std::byte* from = group.strip_scales + __shfl_sync(kAllLanes, group.scales_from, index);
    const int strip = lane_index() / Group::kLanesPerStrip;
    if (strip < strips) {
      std::byte* to = place + strip * scales;
#pragma unroll 1
      for (int i = lane_index() % Group::kLanesPerStrip * 16; i < scales;
           i += Group::kLanesPerStrip * 16) {
        copy_small(to + i, from, policy_);
        from += Group::kLanesPerStrip * 16;
      }
    }
    barrier_arrive_behind_copies(barrier);
  }

  const TokenRingShape& shape_;
  std::byte* headers_;
  std::byte* places_;
  std::uint64_t* filled_;
  std::uint64_t* free_;
  std::uint64_t* row_;  // it has been read
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
  __device__ __forceinline__ void meet() { product_sync(); }
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
