#pragma once
// Weights and prepared activations of a CTA's strips on their way into shared memory, for
// warpgroups: as piece_ring.cuh, but an entry is a run of chunks of up to sixteen strips, so that
// entries stay small where many tokens' activations travel along.

#include "backend/cuda/product/piece_ring.cuh"

namespace bl::cuda {

inline constexpr int kWarpgroupWarps = 16;  // of a CTA, that multiply; one more issues the copies
inline constexpr int kWarpgroupThreads = kWarpgroupWarps * 32;
inline constexpr int kMostStripsAtOnce = 16;
inline constexpr int kMostEntryChunks = 8;
inline constexpr int kMostEntryGroups = 32;

struct WarpgroupRingShape {
  int bytes = 0;    // of entries, behind the headers
  int chunks = 1;   // of an entry, at most
  int strips = 1;   // the same
  int columns = 0;  // brick_columns() of the tokens whose activations travel along

  // Of a unit.
  BL_HD constexpr int brick_bytes() const { return columns * kFragmentBytes; }
  // Σx of a chunk.
  BL_HD constexpr int sum_bytes() const { return columns * static_cast<int>(sizeof(float)); }
  // Bound of an entry, of any widths.
  int largest_entry(int scale_bytes) const {
    const int units = chunks * kMaxChunkUnits;
    const int groups = chunks == 1 ? 1 : kMostEntryGroups;
    return RingShape::rounded(RingShape::rounded(strips * (groups * scale_bytes + 32)) +
                              RingShape::rounded(strips * units * unit_bytes(8)) +
                              units * brick_bytes() + chunks * sum_bytes());
  }
};

struct alignas(16) ChunkRunHeader {
  std::int32_t codes_at = 0;  // of the first chunk in the first strip
  std::int32_t code_stride = 0;
  std::int32_t scales_from = 0;  // where group 0 of the first strip would be
  std::int32_t scale_stride = 0;

  std::int32_t bricks_at = 0;
  std::int16_t matrix = 0;
  std::int16_t flags = 0;  // kEndsStrips, kEndsShare
  std::int32_t first_strip = 0;
  std::int16_t strips = 0;
  std::int16_t chunks = 0;

  std::int32_t sums_at = 0;  // Σx of its chunks
  std::int32_t first_unit = 0;
  std::int32_t units = 0;
  std::int32_t first_chunk = 0;

  uint4 chunk_words[kMostEntryChunks];  // a Chunk each; offsets count from the first one's
};

inline constexpr int kRunHeadersBytes = kMaxRingSlots * static_cast<int>(sizeof(ChunkRunHeader));

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class WarpgroupRing {
 public:
  // `memory`: headers, then entries.
  __device__ WarpgroupRing(const WarpgroupRingShape& shape, std::byte* memory,
                           std::uint64_t* barriers)
      : shape_(shape),
        headers_(reinterpret_cast<ChunkRunHeader*>(memory)),
        entries_(memory + kRunHeadersBytes),
        filled_(barriers),
        free_(barriers + kMaxRingSlots),
        space_(shape.bytes, kMaxRingSlots) {}

  // By one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < kMaxRingSlots; ++i) {
      barrier_init(filled_ + i, 1);
      barrier_init(free_ + i, kWarpgroupThreads);
    }
    barrier_init_fence();
  }

  // By the producing warp: all entries of a share. Activations wait for the kernel before; until
  // the ring is full, they are asked for behind the weights.
  __device__ void produce(const ProductArgs& args, PieceWalk walk) {
    while (walk.open_group()) {
      const Lane lane(args, walk);
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      uint4 words = load_chunks(m, 0);
      for (int c = 0; c < m.chunk_count;) {
        const Run run(words, c, min(shape_.chunks, m.chunk_count - c));
        c += run.count;
        words = load_chunks(m, c);
        const bool ends = c >= m.chunk_count;
        issue(args, lane, run, ends ? kEndsStrips | (walk.is_last() ? kEndsShare : 0) : 0);
      }
    }
    if (!behind_is_done_) issue_first_bricks(args);
  }

  // The next entry, for a multiplying warp.
  __device__ __forceinline__ const ChunkRunHeader& next() {
    barrier_wait(filled_ + slot_, phase_);
    return headers_[slot_];
  }
  // It has been used by this warp.
  __device__ __forceinline__ void release() {
    barrier_arrive(free_ + slot_);
    next_slot();
  }
  __device__ __forceinline__ const std::byte* entries() const { return entries_; }
  __device__ __forceinline__ const WarpgroupRingShape& shape() const { return shape_; }

 private:
  // What one lane copies of every entry of a group: the codes or the scales of a strip.
  struct Lane {
    int strip;
    bool codes;
    bool copies;
    const std::byte* from;
    int scale_bytes;
    int matrix;
    PieceStrips strips;
    __device__ __forceinline__ Lane(const ProductArgs& args, const PieceWalk& walk)
        : strip(lane_index() % kMostStripsAtOnce),
          codes(lane_index() < kMostStripsAtOnce),
          matrix(walk.matrix()),
          strips(walk.strips()) {
      const CodeMatrixView& m = args.matrices[matrix].view;
      copies = strip < strips.count;
      scale_bytes = cuda::scale_bytes(m.kind);
      const std::int64_t at = strips.first + strip;
      from = codes ? m.codes + at * m.strip_bytes : m.scales + at * scale_stride(m.kind, m.groups);
    }
  };

  // Chunks from a first one on, a lane each, as far as their groups' scales have room.
  struct Run {
    uint4 words;  // this lane's
    int first;
    int count;
    int offset;  // of the first, bytes from the strip's start
    int bytes;   // of a strip
    int first_unit;
    int units;
    int first_group;
    int groups;
    __device__ __forceinline__ Run(const uint4& chunk, int number, int most)
        : words(chunk), first(number) {
      const std::uint32_t z = __shfl_sync(kAllLanes, words.z, 0);
      const unsigned far = __ballot_sync(
          kAllLanes, (words.z >> 16) - (z >> 16) >= static_cast<unsigned>(kMostEntryGroups) ||
                         lane_index() >= most);
      count = __ffs(static_cast<int>(far)) - 1;
      const int last = count - 1;
      const std::uint32_t last_z = __shfl_sync(kAllLanes, words.z, last);
      const std::uint32_t last_w = __shfl_sync(kAllLanes, words.w, last);
      const auto first_x = static_cast<int>(__shfl_sync(kAllLanes, words.x, 0));
      const auto last_x = static_cast<int>(__shfl_sync(kAllLanes, words.x, last));
      const auto last_units = static_cast<int>(last_w >> 8 & 0xffu);
      offset = first_x * 64;
      bytes = (last_x - first_x) * 64 + last_units * unit_bytes(static_cast<int>(last_w & 0xffu));
      first_unit = static_cast<int>(z & 0xffffu);
      units = static_cast<int>(last_z & 0xffffu) + last_units - first_unit;
      first_group = static_cast<int>(z >> 16);
      groups = static_cast<int>(last_z >> 16) - first_group + 1;
    }
  };

  // A lane each, those from `first` on; the last one again behind it.
  __device__ __forceinline__ static uint4 load_chunks(const CodeMatrixView& m, int first) {
    return __ldg(reinterpret_cast<const uint4*>(m.chunks) +
                 min(first + lane_index(), m.chunk_count - 1));
  }

  __device__ __forceinline__ void next_slot() {
    if (++slot_ == kMaxRingSlots) {
      slot_ = 0;
      phase_ ^= 1u;
    }
  }

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

  __device__ __forceinline__ void issue(const ProductArgs& args, const Lane& lane, const Run& run,
                                        int flags) {
    const int first_scale = run.first_group * lane.scale_bytes / 16 * 16;
    const int scales =
        ((run.first_group + run.groups) * lane.scale_bytes + 15) / 16 * 16 - first_scale;
    const int codes_at = RingShape::rounded(lane.strips.count * scales);
    const int bricks_at = RingShape::rounded(codes_at + lane.strips.count * run.bytes);
    const int brick_bytes = run.units * shape_.brick_bytes();
    const int sum_bytes = run.count * shape_.sum_bytes();
    const int bytes = RingShape::rounded(bricks_at + brick_bytes + sum_bytes);
    if (!behind_is_done_ && !space_.fits(bytes)) issue_first_bricks(args);
    const int at = make_place(bytes);
    std::uint64_t* barrier = filled_ + slot_;
    ChunkRunHeader& header = headers_[slot_];
    if (lane_index() < run.count) {
      uint4 words = run.words;
      words.x -= static_cast<std::uint32_t>(run.offset / 64);
      header.chunk_words[lane_index()] = words;
    }
    __syncwarp();
    if (lane_index() == 0) {
      header.codes_at = at + codes_at;
      header.code_stride = run.bytes;
      header.scales_from = at - first_scale;
      header.scale_stride = scales;
      header.bricks_at = at + bricks_at;
      header.matrix = static_cast<std::int16_t>(lane.matrix);
      header.flags = static_cast<std::int16_t>(flags);
      header.first_strip = lane.strips.first;
      header.strips = static_cast<std::int16_t>(lane.strips.count);
      header.chunks = static_cast<std::int16_t>(run.count);
      header.first_unit = run.first_unit;
      header.units = run.units;
      header.first_chunk = run.first;
      header.sums_at = header.bricks_at + brick_bytes;
      barrier_expect(barrier, lane.strips.count * (scales + run.bytes) + brick_bytes + sum_bytes);
    }
    __syncwarp();
    if (lane.copies && lane.codes) {
      bulk_copy(entries_ + at + codes_at + lane.strip * run.bytes, lane.from + run.offset,
                run.bytes, barrier, read_once());
    } else if (lane.copies) {
      bulk_copy(entries_ + at + lane.strip * scales, lane.from + first_scale, scales, barrier,
                read_once());
    }
    if (behind_is_done_) issue_bricks(args, slot_);
    ++issued_;
    next_slot();
  }

  __device__ __forceinline__ void issue_bricks(const ProductArgs& args, int slot) {
    if (lane_index() > 1) return;
    const ChunkRunHeader& of = headers_[slot];
    const ProductMatrix& m = args.matrices[of.matrix];
    const std::int64_t tile = args.first_token;
    if (lane_index() == 0) {
      bulk_copy(entries_ + of.bricks_at,
                reinterpret_cast<const std::byte*>(m.fragments) +
                    (tile * m.view.units + of.first_unit * shape_.columns) * kFragmentBytes,
                of.units * shape_.brick_bytes(), filled_ + slot);
    } else {
      bulk_copy(entries_ + of.sums_at,
                m.chunk_sums + tile * m.view.chunk_count + of.first_chunk * shape_.columns,
                of.chunks * shape_.sum_bytes(), filled_ + slot);
    }
  }

  // Of the entries that filled the ring first, which are those from slot 0 on.
  __device__ __forceinline__ void issue_first_bricks(const ProductArgs& args) {
    dependency_wait();
#pragma unroll 1
    for (int i = 0; i < issued_; ++i) issue_bricks(args, i);
    behind_is_done_ = true;
  }

  const WarpgroupRingShape& shape_;
  ChunkRunHeader* headers_;
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
  int issued_ = 0;
  bool behind_is_done_ = false;
};

#endif

}  // namespace bl::cuda
