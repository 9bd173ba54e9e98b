#pragma once
// The pipeline of gemm_skinny_smem: a producer warp brings the copy_blocks of a CTA's n_tiles into
// shared memory by bulk copies (cp.async.bulk), 15 consumer warps multiply them. A stage's full
// barrier completes with the bytes of its copies; its empty barrier when all consumer lanes have
// released it. Weights never wait for the launch in front (programmatic dependent launch);
// activations that travel with them do.
//
// Below compute capability 9.0 there are no bulk copies: there the consumer warps walk over the
// same copy_blocks and read them from global memory.

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/pipeline/pipeline_shape.h"
#include "backend/cuda/gemm/pipeline/stage_allocator.h"

namespace bl::cuda {

// Barrier among the consumer warps; the producer warp does not take part.
__device__ __forceinline__ void consumer_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory");
}

// Describes the contents of a stage; offsets count from the pipeline's data.
struct alignas(16) StageHeader {
  std::uint8_t k_blocks = 0;
  std::uint8_t matrix = 0;
  std::uint16_t flags = 0;
  // Added to a k_block's offset, and to the offset of its group's scales.
  std::int32_t codes_from = 0;
  std::int32_t scales_from = 0;
  // Where k_step 0 of the first token would be.
  std::int32_t fragments_from = 0;

  std::int32_t code_stride = 0;  // bytes between n_tiles
  std::int32_t scale_stride = 0;
  std::int32_t k_blocks_at = 0;
  std::int32_t n_tiles = 0;

  std::int32_t first_n_tile = 0;  // of the matrix
  std::int32_t fragments_at = 0;
  std::uint16_t first_k_step = 0;
  std::uint16_t k_steps = 0;
  std::int32_t unused = 0;
};
static_assert(sizeof(StageHeader) == PipelineShape::kHeaderBytes);
inline constexpr int kEndsNTiles = 1;
inline constexpr int kEndsCtaRange = 2;

// The n_tiles of a copy_block.
struct NTileRange {
  int first = 0;  // of the matrix
  int count = 0;
};

// Returns one copy_block that covers a run of them, given the first and the last.
__device__ __forceinline__ CopyBlock joined_copy_block(const uint4& first, const uint4& last) {
  CopyBlock copy_block;
  CopyBlock end;
  *reinterpret_cast<uint4*>(&copy_block) = first;
  *reinterpret_cast<uint4*>(&end) = last;
  copy_block.size = static_cast<std::uint16_t>(end.offset + end.size - copy_block.offset);
  copy_block.k_steps =
      static_cast<std::uint8_t>(end.first_k_step + end.k_steps - copy_block.first_k_step);
  copy_block.k_blocks =
      static_cast<std::uint8_t>(end.first_k_block + end.k_blocks - copy_block.first_k_block);
  copy_block.groups =
      static_cast<std::uint8_t>(end.first_group + end.groups - copy_block.first_group);
  return copy_block;
}

// Walks over the copy_blocks of a CTA's range: n_tiles of one matrix in groups of at most
// `at_once`, and each group copy_block by copy_block. A gated GEMM visits a group of the first
// matrix, then the same n_tiles of the second.
class CopyBlockWalk {
 public:
  __device__ CopyBlockWalk(const PackedGemmArgs& args, int begin, int end, int at_once)
      : args_(&args), at_(begin), end_(end), at_once_(at_once), matrix_(args.gated ? 1 : 0) {}

  // Goes to the next group; false if there is none.
  __device__ __forceinline__ bool open_group() {
    if (args_->gated && matrix_ == 0) {
      matrix_ = 1;
    } else {
      at_ += n_tiles_;
      if (at_ >= end_) return false;
      int limit = end_;
      if (args_->gated) {
        matrix_ = 0;
      } else {
        while (at_ >= n_tiles_before_ + args_->matrices[matrix_].view.n_tiles) {
          n_tiles_before_ += args_->matrices[matrix_++].view.n_tiles;
        }
        limit = min(end_, n_tiles_before_ + args_->matrices[matrix_].view.n_tiles);
      }
      n_tiles_ = min(at_once_, limit - at_);
    }
    return true;
  }
  __device__ __forceinline__ const PackedGemmArgs& args() const { return *args_; }
  __device__ __forceinline__ int matrix() const { return matrix_; }
  __device__ __forceinline__ NTileRange n_tiles() const {
    return {at_ - n_tiles_before_, n_tiles_};
  }
  __device__ __forceinline__ bool is_last() const {
    return at_ + n_tiles_ >= end_ && (!args_->gated || matrix_ == 1);
  }
  // Returns the flags of the group's copy_block `index` out of `copy_blocks`.
  __device__ __forceinline__ int flags(int index, int copy_blocks) const {
    if (index + 1 < copy_blocks) return 0;
    return kEndsNTiles | (is_last() ? kEndsCtaRange : 0);
  }

 private:
  const PackedGemmArgs* args_;
  int at_;
  int end_;
  int at_once_;
  int matrix_;
  int n_tiles_ = 0;
  int n_tiles_before_ = 0;
};

// A stage as the consumer warps see it.
struct StageView {
  int k_blocks = 0;
  int matrix = 0;
  int flags = 0;
  int n_tiles = 0;
  const uint4* k_block_words = nullptr;  // a KBlock each
  const std::byte* scales = nullptr;     // where group 0 of the first n_tile would be
  int scale_stride = 0;                  // bytes between n_tiles
  const std::byte* codes = nullptr;      // where the first n_tile would begin
  int code_stride = 0;
  const std::byte* fragments = nullptr;  // where k_step 0 of the first token would be
  int k_step_stride = 0;                 // of fragments, in bytes
};

// Returns the packed activations of the launch's tokens at k_step 0. Each k_step holds the
// fragments of all tokens of the launch.
__device__ __forceinline__ const std::byte* first_fragments(const PackedGemmArgs& args,
                                                            const PackedGemmMatrix& m) {
  return reinterpret_cast<const std::byte*>(m.fragments) +
         args.first_token * m.view.k_steps * kFragmentBytes;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// kFragments: activations travel with the weights, shape.input_bytes a k_step unless set_input()
// said otherwise; else the consumer warps have them already.
template <bool kFragments>
class SmemPipeline {
 public:
  // `memory`: the headers, then the stages.
  __device__ SmemPipeline(const PipelineShape& shape, std::byte* memory, std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        data_(memory + PipelineShape::kHeadersBytes),
        full_(barriers),
        empty_(barriers + kMaxStages),
        input_bytes_(kFragments ? shape.input_bytes : 0),
        space_(shape.bytes, kMaxStages) {}

  // Initialises the barriers: called by one thread, before the CTA's first barrier.
  __device__ void init() {
    for (int i = 0; i < kMaxStages; ++i) {
      barrier_init(full_ + i, 1);
      barrier_init(empty_ + i, kConsumerWarps * 32);
    }
    barrier_init_fence();
  }

  // Sets the bytes of one k_step's activations for the stages that follow: called by the producer
  // warp and by all consumer warps. At most shape.input_bytes.
  __device__ __forceinline__ void set_input(int bytes) { input_bytes_ = bytes; }

  // The producer warp: copies everything in a CTA's range. Fragments wait for the launch in front;
  // weights need not, but early copies slow that launch down, so only shape.early_stages stages go
  // ahead (bench/ladder/gemm_skinny.md).
  __device__ void produce(const PackedGemmArgs& args, CopyBlockWalk walk) {
    const int first_stage = stage_;
    int issued = 0;
    while (walk.open_group()) {
      const int joined = max(shape_.most_joined / walk.n_tiles().count, 1);
      const Lane lane(args, walk);
      const CodeMatrixView& m = args.matrices[walk.matrix()].view;
      const auto* words = reinterpret_cast<const uint4*>(m.copy_blocks);
      const int copy_blocks = m.copy_block_count;
      uint4 first = __ldg(words);
      uint4 last = __ldg(words + min(joined, copy_blocks) - 1);
      for (int i = 0; i < copy_blocks; i += joined) {
        const StageLayout load(lane, joined_copy_block(first, last), input_bytes_);
        first = __ldg(words + min(i + joined, copy_blocks - 1));
        last = __ldg(words + min(i + 2 * joined, copy_blocks) - 1);
        if (!waited_ && (issued == shape_.early_stages || !space_.fits(load.bytes))) {
          issue_first_fragments(args, first_stage, issued);
        }
        const int at = allocate(load.bytes);
        issue_weights(lane, load, walk.flags(i + joined - 1, copy_blocks), at);
        if (kFragments && waited_) issue_fragments(args, stage_);
        ++issued;
        next_stage();
      }
    }
    if (!waited_) issue_first_fragments(args, first_stage, issued);
  }

  // Consumer warps: waits until the next stage is full. Its fragments came with it, or lie at
  // `own_fragments`.
  __device__ __forceinline__ void next(const PackedGemmArgs&, const std::byte* own_fragments,
                                       StageView& view) {
    barrier_wait(full_ + stage_, phase_);
    const auto* words = reinterpret_cast<const int4*>(header(stage_));
    const int4 head = words[0];
    const int4 more = words[1];
    view.k_blocks = head.x & 0xff;
    view.matrix = head.x >> 8 & 0xff;
    view.flags = head.x >> 16;
    view.codes = data_ + head.y;
    view.scales = data_ + head.z;
    view.code_stride = more.x;
    view.scale_stride = more.y;
    view.k_block_words = reinterpret_cast<const uint4*>(data_ + more.z);
    view.n_tiles = more.w;
    view.fragments = (kFragments ? data_ : own_fragments) + head.w;
    view.k_step_stride = input_bytes_;
  }
  // Returns the n_tiles of the current stage.
  __device__ __forceinline__ NTileRange n_tiles() const {
    const StageHeader* of = header(stage_);
    return {of->first_n_tile, of->n_tiles};
  }
  // This warp is done with the current stage.
  __device__ __forceinline__ void release() {
    // Every lane arrives: one lane behind __syncwarp() would do, but racecheck cannot follow that.
    barrier_arrive(empty_ + stage_);
    next_stage();
  }

 private:
  __device__ __forceinline__ void next_stage() {
    if (++stage_ == kMaxStages) {
      stage_ = 0;
      phase_ ^= 1u;
    }
  }
  __device__ __forceinline__ StageHeader* header(int stage) const {
    return reinterpret_cast<StageHeader*>(headers_) + stage;
  }
  // What one lane copies of every copy_block of a group: the codes or the scales of one n_tile, or
  // the table of k_blocks. A group has eight n_tiles at most.
  struct Lane {
    enum Role { kCodes, kScales, kKBlocks, kNothing };
    Role role = kNothing;
    const std::byte* from = nullptr;
    int n_tile = 0;  // in the group
    int scale_bytes = 0;
    int matrix = 0;
    NTileRange n_tiles;
    // Where its input layout begins in activations that the CTA packed itself.
    int fragments_from = 0;

    __device__ __forceinline__ Lane(const PackedGemmArgs& args, const CopyBlockWalk& walk)
        : n_tile(lane_index() % 8), matrix(walk.matrix()), n_tiles(walk.n_tiles()) {
      const PackedGemmMatrix& of = args.matrices[matrix];
      const CodeMatrixView& m = of.view;
      const int lane = lane_index();
      scale_bytes = cuda::scale_bytes(m.kind);
      fragments_from = of.input_layout * args.input_layout_bytes;
      if (lane < n_tiles.count) {
        role = kCodes;
        from = m.codes + (n_tiles.first + n_tile) * m.n_tile_bytes;
      } else if (lane >= 8 && lane < 8 + n_tiles.count) {
        role = kScales;
        from = m.scales + (n_tiles.first + n_tile) * scale_stride(m.kind, m.groups);
      } else if (lane == 16) {
        role = kKBlocks;
        from = reinterpret_cast<const std::byte*>(m.k_blocks);
      }
    }
  };

  // The parts of a stage: their bytes, and where they begin in it.
  struct StageLayout {
    CopyBlock copy_block;
    int k_blocks;
    int first_scale;  // in the n_tile's scales, rounded down for the copy
    int scales;       // of an n_tile
    int codes;        // of an n_tile
    int codes_at;
    int fragments_at;
    int bytes;
    __device__ __forceinline__ StageLayout(const Lane& lane, const CopyBlock& of,
                                           int fragment_bytes)
        : copy_block(of),
          k_blocks(of.k_blocks * static_cast<int>(sizeof(KBlock))),
          first_scale(of.first_group * lane.scale_bytes / 16 * 16),
          scales(((of.first_group + of.groups) * lane.scale_bytes + 15) / 16 * 16 - first_scale),
          codes(of.size * 64),
          codes_at(PipelineShape::rounded(k_blocks + lane.n_tiles.count * scales)),
          fragments_at(codes_at + lane.n_tiles.count * codes),
          bytes(PipelineShape::rounded(fragments_at + of.k_steps * fragment_bytes)) {}
  };

  // Waits until the oldest stages are empty and leave room; returns where the new stage begins.
  __device__ __forceinline__ int allocate(int bytes) {
    while (!space_.fits(bytes)) {
      barrier_wait(empty_ + oldest_, oldest_phase_);
      space_.release(__shfl_sync(kAllLanes, taken_, oldest_));
      if (++oldest_ == kMaxStages) {
        oldest_ = 0;
        oldest_phase_ ^= 1u;
      }
    }
    const StageAllocator::Allocation allocation = space_.allocate(bytes);
    if (lane_index() == stage_) taken_ = allocation.taken;
    return allocation.at;
  }

  // Issues the copies of weights. The full barrier expects the bytes of the fragments as well.
  __device__ __forceinline__ void issue_weights(const Lane& lane, const StageLayout& load,
                                                int flags, int at) {
    const CopyBlock& copy_block = load.copy_block;
    std::uint64_t* barrier = full_ + stage_;
    if (lane_index() == 0) {
      StageHeader header;
      header.k_blocks = copy_block.k_blocks;
      header.matrix = static_cast<std::uint8_t>(lane.matrix);
      header.flags = static_cast<std::uint16_t>(flags);
      header.codes_from = at + load.codes_at - static_cast<int>(copy_block.offset) * 64;
      header.scales_from = at + load.k_blocks - load.first_scale;
      header.fragments_at = at + load.fragments_at;
      header.fragments_from = kFragments
                                  ? header.fragments_at - copy_block.first_k_step * input_bytes_
                                  : lane.fragments_from;
      header.first_k_step = copy_block.first_k_step;
      header.k_steps = copy_block.k_steps;
      header.code_stride = load.codes;
      header.scale_stride = load.scales;
      header.k_blocks_at = at;
      header.first_n_tile = lane.n_tiles.first;
      header.n_tiles = lane.n_tiles.count;
      *this->header(stage_) = header;
      barrier_expect(barrier, load.k_blocks + lane.n_tiles.count * (load.scales + load.codes) +
                                  copy_block.k_steps * input_bytes_);
    }
    __syncwarp();
    std::byte* to = data_ + at;
    if (lane.role == Lane::kCodes) {
      bulk_copy(to + load.codes_at + lane.n_tile * load.codes,
                lane.from + std::int64_t{copy_block.offset} * 64, load.codes, barrier,
                evict_first());
    } else if (lane.role == Lane::kScales) {
      bulk_copy(to + load.k_blocks + lane.n_tile * load.scales, lane.from + load.first_scale,
                load.scales, barrier, evict_first());
    } else if (lane.role == Lane::kKBlocks) {
      bulk_copy(to, lane.from + copy_block.first_k_block * 16, load.k_blocks, barrier);
    }
  }

  // Copies the fragments of all tokens for a stage, which are contiguous.
  __device__ __forceinline__ void issue_fragments(const PackedGemmArgs& args, int stage) {
    __syncwarp();
    if (lane_index() == 0) {
      const StageHeader& of = *header(stage);
      bulk_copy(data_ + of.fragments_at,
                first_fragments(args, args.matrices[of.matrix]) +
                    std::int64_t{of.first_k_step} * input_bytes_,
                of.k_steps * input_bytes_, full_ + stage);
    }
  }

  // Issues the fragments of the stages whose weights were copied ahead of pdl_wait().
  __device__ __forceinline__ void issue_first_fragments(const PackedGemmArgs& args, int first_stage,
                                                        int count) {
    pdl_wait();
    waited_ = true;
#pragma unroll 1
    for (int i = 0; i < count; ++i) issue_fragments(args, (first_stage + i) % kMaxStages);
  }

  const PipelineShape& shape_;
  std::byte* headers_;
  std::byte* data_;
  std::uint64_t* full_;
  std::uint64_t* empty_;
  int input_bytes_;  // of one k_step, all tokens
  int stage_ = 0;
  std::uint32_t phase_ = 0;
  // State of the producer warp.
  bool waited_ = !kFragments;  // for the launch in front
  StageAllocator space_;
  int taken_ = 0;  // in lane i: bytes taken by stage i
  int oldest_ = 0;
  std::uint32_t oldest_phase_ = 0;
};

#else

template <bool kFragments>
class SmemPipeline {
 public:
  __device__ SmemPipeline(const PipelineShape&, const CopyBlockWalk& walk) : walk_(walk) {}

  __device__ __forceinline__ void next(const PackedGemmArgs& args, const std::byte* own_fragments,
                                       StageView& view) {
    if (copy_block_ == copy_blocks_) {
      walk_.open_group();
      copy_block_ = 0;
      copy_blocks_ = args.matrices[walk_.matrix()].view.copy_block_count;
    }
    const PackedGemmMatrix& matrix = args.matrices[walk_.matrix()];
    const CodeMatrixView& m = matrix.view;
    const CopyBlock copy_block = m.copy_blocks[copy_block_];
    view.flags = walk_.flags(copy_block_++, copy_blocks_);
    view.k_blocks = copy_block.k_blocks;
    view.matrix = walk_.matrix();
    view.n_tiles = n_tiles().count;
    view.k_block_words = reinterpret_cast<const uint4*>(m.k_blocks + copy_block.first_k_block);
    view.scale_stride = static_cast<int>(scale_stride(m.kind, m.groups));
    view.scales = m.scales + n_tiles().first * std::int64_t{view.scale_stride};
    view.codes = m.codes + n_tiles().first * m.n_tile_bytes;
    view.code_stride = static_cast<int>(m.n_tile_bytes);
    view.k_step_stride = args.tokens * kFragmentBytes;
    view.fragments = kFragments
                         ? first_fragments(args, matrix)
                         : own_fragments + matrix.input_layout * walk_.args().input_layout_bytes;
  }
  __device__ __forceinline__ NTileRange n_tiles() const { return walk_.n_tiles(); }
  __device__ __forceinline__ void release() {}

 private:
  CopyBlockWalk walk_;
  int copy_block_ = 0;
  int copy_blocks_ = 0;
};

#endif

}  // namespace bl::cuda
