#pragma once
// The pipeline of gemv_i8, built for the shortest time from launch to first copy, which bounds
// small GEMVs, and for the fewest producer instructions a stage (bench/ladder/gemv_i8.md). Ranges
// and copy_blocks arrive as kernel parameters, and the host has done all divisions. The producer
// initialises the barriers itself, issues the first codes before it computes anything else, and
// prepares the next group after the current one's first stage. Each lane describes one stage; all
// stages have equal length. Bulk copies issue one after the other, so only codes use them; scales
// are copied by cp.async, 16 bytes a lane, into room that bulk copies never write, so that no proxy
// fence is needed. K_blocks are not copied at all: they are the same for all n_tiles and stay in
// shared memory (copy_tables in gemv_i8.cu). On compute capability 8.x, which has no bulk copies,
// the producer warp copies codes by cp.async too.

#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/partition/cta_range_begins.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/prefetch/key_prefetch.cuh"
#include "backend/cuda/prefetch/weight_prefetch.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

class GemvPipeline {
 public:
  // `memory`: the headers, then the stages.
  __device__ GemvPipeline(const GemvPipelineShape& shape, std::byte* memory,
                          std::uint64_t* barriers)
      : shape_(shape),
        headers_(memory),
        data_(opaque_smem_ptr(memory + PipelineShape::kHeadersBytes)),
        full_(barriers),
        empty_(barriers + kMaxStages),
        row_read_(barriers + 2 * kMaxStages) {}

  // The producer warp: copies the n_tiles [begin, end), then issues `prefetch`.
  __device__ void produce(const GemvLaunchPlan& plan, int begin, int end,
                          const Prefetches& prefetch) {
    policy_ = evict_first();
    bool codes_issued = shape_.early;
    init_stages(0, 1);
    NTileGroup now(plan, begin, end);
    if (codes_issued) issue_codes(now, now.first_codes(plan), 0);
    init_stages(1, kMaxStages);
    asm volatile("bar.arrive 2, %0;" ::"n"(kConsumerThreads + 32) : "memory");
    now.describe(plan, shape_);
    while (true) {
      NTileGroup next = now;
      bool more = false;
#pragma unroll 1
      for (int i = 0; i < now.loads(); ++i) {
        wait_for_turn();
        issue(now, i, !codes_issued);
        codes_issued = false;
        if (next_stage()) wrapped_ = true;
        if (i == 0) more = next.advance(plan, shape_);
      }
      if (!more) break;
      now = next;
    }
#if __CUDA_ARCH__ >= 900
    if (prefetch.keys.k != nullptr) issue_key_prefetch(prefetch.keys);
    if (prefetch.weights.count == 0) return;
    // Weights of later launches must not delay the activations of this one.
    barrier_wait(row_read_, 0);
    issue_weight_prefetch(prefetch.weights);
#endif
  }

  // Consumer threads meet here with the producer when they have read the row; then barriers exist
  // too.
  __device__ __forceinline__ void sync_row_read() {
    asm volatile("bar.sync 2, %0;" ::"n"(kConsumerThreads + 32) : "memory");
    if (threadIdx.x == 0) barrier_arrive(row_read_);
  }
  // Waits until the next stage is full: returns its k_blocks in bits 0 to 7, flags from bit 16 on.
  __device__ __forceinline__ std::uint32_t wait() {
    barrier_wait(full_ + stage_, phase_);
    return header(stage_)->word;
  }
  // Returns that stage for a consumer warp. `input`: limbs; `tables`: k_blocks.
  __device__ __forceinline__ void view(const std::byte* input, const std::byte* tables,
                                       StageView& view) const {
    const auto* words = reinterpret_cast<const int4*>(header(stage_));
    const int4 head = words[0];
    const int4 more = words[1];
    const std::byte* stage_data = data_ + stage_ * shape_.stage_bytes;
    view.k_blocks = head.x & 0xff;
    view.n_tiles = head.x >> 8 & 0xf;
    view.matrix = head.x >> 12 & 0xf;
    view.flags = head.x >> 16;
    view.codes = stage_data + head.y;
    view.scales = stage_data + head.z;
    view.k_block_words = reinterpret_cast<const uint4*>(tables + head.w);
    view.code_stride = more.x;
    view.scale_stride = more.y;
    view.fragments = input + more.z;
    view.k_step_stride = 0;
  }
  // Returns the n_tiles of the current stage.
  __device__ __forceinline__ NTileRange n_tiles() const {
    const StageHeader* of = header(stage_);
    return {of->first_n_tile, static_cast<int>(of->word >> 8 & 0xf)};
  }
  // This warp is done with the current stage.
  __device__ __forceinline__ void release() {
#if __CUDA_ARCH__ >= 900
    // Every lane arrives: one lane behind __syncwarp() would do, but racecheck cannot follow that.
    barrier_arrive(empty_ + stage_);
#else
    __syncwarp();
    if (lane_index() == 0) barrier_arrive(empty_ + stage_);
#endif
    next_stage();
  }

 private:
  static constexpr int kMaxInFlight = 2;  // stages
  // Arrivals that release a stage.
  static constexpr int kReleases = __CUDA_ARCH__ >= 900 ? kConsumerWarps * 32 : kConsumerWarps;

  // Describes the contents of a stage; offsets count from the stage's data.
  struct alignas(16) StageHeader {
    std::uint32_t word;         // k_blocks, n_tiles, matrix, flags
    std::int32_t codes_from;    // added to a k_block's offset
    std::int32_t scales_from;   // added to the offset of its group
    std::int32_t k_blocks_at;   // in the tables
    std::int32_t code_stride;   // bytes between n_tiles
    std::int32_t scale_stride;  // bytes between n_tiles
    std::int32_t input_at;      // where the matrix's input layout begins
    std::int32_t first_n_tile;
  };
  static_assert(sizeof(StageHeader) <= PipelineShape::kHeaderBytes);

  // Initialises the barriers of stages [first, end), and after the last stage that of the row.
  __device__ __forceinline__ void init_stages(int first, int end) {
    if (lane_index() == 0) {
#pragma unroll
      for (int i = first; i < end; ++i) {
        barrier_init(full_ + i, 1 + 32);  // the header's lane, and each lane's cp.async
        barrier_init(empty_ + i, kReleases);
      }
      if (end == kMaxStages) barrier_init(row_read_, 1);
      barrier_init_fence();
    }
    __syncwarp();
  }
  // Waits until the next stage may be copied. Many copies in flight slow down the reading of rows,
  // also by other CTAs, and do not arrive any sooner.
  __device__ __forceinline__ void wait_for_turn() {
    if (wrapped_) {
      barrier_wait(empty_ + stage_, phase_ ^ 1u);
    } else {
      while (!barrier_test(row_read_, 0) &&
             !(shape_.early && (stage_ == 0 || barrier_test(full_ + stage_ - 1, 0)))) {
      }
    }
    const int most = min(kMaxInFlight, shape_.stages);
    if (stage_ >= most) {
      barrier_wait(full_ + stage_ - most, phase_);
    } else if (wrapped_) {
      barrier_wait(full_ + stage_ - most + shape_.stages, phase_ ^ 1u);
    }
  }
  // Returns true if the pipeline wraps around.
  __device__ __forceinline__ bool next_stage() {
    if (++stage_ < shape_.stages) return false;
    stage_ = 0;
    phase_ ^= 1u;
    return true;
  }
  __device__ __forceinline__ StageHeader* header(int stage) const {
    return reinterpret_cast<StageHeader*>(headers_ + stage * PipelineShape::kHeaderBytes);
  }
  // A group of up to kGemvNTiles n_tiles of one matrix, and up to 32 of its stages, one described
  // by each lane. A gated GEMM has a group of the first matrix, then the same n_tiles of the
  // second.
  class NTileGroup {
   public:
    // The caller must call describe().
    __device__ __forceinline__ NTileGroup(const GemvLaunchPlan& plan, int begin, int end)
        : at_(begin), end_(end) {
      open(plan, plan.matrix_of(begin));
    }
    // Goes to the next stages of the range; false if there are none.
    __device__ __forceinline__ bool advance(const GemvLaunchPlan& plan,
                                            const GemvPipelineShape& shape) {
      first_ += 32;
      if (first_ >= all_) {
        if (plan.gated && matrix_ == 0) {
          open(plan, 1);
        } else {
          at_ += n_tiles_;
          if (at_ >= end_) return false;
          open(plan, plan.matrix_of(at_));
        }
      }
      describe(plan, shape);
      return true;
    }
    __device__ __forceinline__ int n_tiles() const { return n_tiles_; }
    __device__ __forceinline__ int loads() const { return min(all_ - first_, 32); }
    // Returns the bytes of codes that an n_tile has in the first stage.
    __device__ __forceinline__ int first_codes(const GemvLaunchPlan& plan) const {
      return static_cast<int>(plan.sources[matrix_].first_codes[n_tiles_ - 1]);
    }

    uint4 header[2];
    std::uint32_t codes_from;  // where they begin in the n_tile, in bytes
    std::uint32_t codes;       // bytes of an n_tile
    std::uint32_t scales_from;
    std::uint32_t scales;
    // What this lane copies in every stage: the codes of n_tile `lane`, and every eighth 16 bytes
    // of the scales of n_tile lane / 8.
    static constexpr int kLanesPerNTile = 8;
    const std::byte* n_tile_codes;
    const std::byte* n_tile_scales;

    // Computes the description of this lane's stage.
    __device__ __forceinline__ void describe(const GemvLaunchPlan& plan,
                                             const GemvPipelineShape& shape) {
      const GemvSource& of = plan.sources[matrix_];
      const int load = first_ + lane_index();
      const int from = min(load * joined_, of.copy_blocks - 1);
      const int to = min((load + 1) * joined_, of.copy_blocks) - 1;
      const CopyBlock copy_block =
          joined_copy_block(this->copy_block(plan, from), this->copy_block(plan, to));
      const std::uint32_t scale = of.scale_bytes;
      codes_from = copy_block.offset * 64u;
      codes = copy_block.size * 64u;
      scales_from = copy_block.first_group * scale / 16 * 16;
      scales = ((copy_block.first_group + copy_block.groups) * scale + 15) / 16 * 16 - scales_from;
      unsigned flags = 0;
      if (load + 1 == all_) {
        const bool last = at_ + n_tiles_ >= end_ && (!plan.gated || matrix_ == 1);
        flags = last ? kEndsNTiles | kEndsCtaRange : kEndsNTiles;
      }
      header[0].x = copy_block.k_blocks | static_cast<unsigned>(n_tiles_) << 8 |
                    static_cast<unsigned>(matrix_) << 12 | flags << 16;
      header[0].y = static_cast<std::uint32_t>(shape.scale_room) - codes_from;
      header[0].z = 0u - scales_from;
      header[0].w = static_cast<std::uint32_t>(of.k_blocks_at) +
                    copy_block.first_k_block * std::uint32_t{of.k_block_bytes};
      header[1].x = codes;
      header[1].y = scales;
      header[1].z = static_cast<std::uint32_t>(of.input_at);
      header[1].w = static_cast<std::uint32_t>(first_n_tile_);
    }

   private:
    __device__ __forceinline__ void open(const GemvLaunchPlan& plan, int matrix) {
      matrix_ = matrix;
      first_ = 0;
      const int before = plan.gated ? 0 : plan.first_n_tiles[matrix];
      const int limit = plan.gated ? end_ : min(end_, plan.first_n_tiles[matrix + 1]);
      n_tiles_ = min(plan.n_tiles_at_once, limit - at_);
      first_n_tile_ = at_ - before;
      const GemvSource& of = plan.sources[matrix];
      joined_ = of.joined[n_tiles_ - 1];
      all_ = of.loads[n_tiles_ - 1];
      const auto first = static_cast<unsigned>(first_n_tile_);
      const auto lane = static_cast<unsigned>(lane_index());
      n_tile_codes = of.codes + std::uint64_t{first + lane} * of.n_tile_bytes;
      n_tile_scales = of.scales + std::uint64_t{first + lane / kLanesPerNTile} * of.scale_stride +
                      lane % kLanesPerNTile * 16;
    }
    __device__ __forceinline__ uint4 copy_block(const GemvLaunchPlan& plan, int index) const {
      const CopyBlock* far = plan.sources[matrix_].far_copy_blocks;
      if (far == nullptr) return *reinterpret_cast<const uint4*>(&plan.copy_blocks[matrix_][index]);
      return __ldg(reinterpret_cast<const uint4*>(far) + index);
    }
    int at_;
    int end_;
    int matrix_ = 0;
    int n_tiles_ = 0;
    int first_n_tile_ = 0;  // in the matrix
    int joined_ = 1;        // copy_blocks in a stage
    int all_ = 0;           // stages of the group
    int first_ = 0;         // the stage of lane 0
  };

  // Copies `bytes` bytes of codes of every n_tile, from byte `from` of the n_tile, to the next
  // stage.
  __device__ __forceinline__ void issue_codes(const NTileGroup& group, int bytes,
                                              std::uint32_t from) {
    std::byte* stage_data = data_ + stage_ * shape_.stage_bytes + shape_.scale_room;
#if __CUDA_ARCH__ >= 900
    if (lane_index() >= group.n_tiles()) return;
    bulk_copy(stage_data + lane_index() * bytes, group.n_tile_codes + from, bytes, full_ + stage_,
              policy_);
#else
#pragma unroll 1
    for (int i = 0; i < group.n_tiles(); ++i) {
      const auto codes = reinterpret_cast<std::uint64_t>(group.n_tile_codes);
      const auto first = reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, codes, i));
      copy_by_warp(stage_data + i * bytes, first + from, bytes, policy_);
    }
#endif
  }
  // Fills the next stage with stage `index` of the group; `codes_too`: its codes were not issued
  // yet.
  __device__ __forceinline__ void issue(const NTileGroup& group, int index, bool codes_too) {
    std::uint64_t* barrier = full_ + stage_;
    std::byte* stage_data = data_ + stage_ * shape_.stage_bytes;
    const int n_tiles = group.n_tiles();
    const std::uint32_t codes_from = __shfl_sync(kAllLanes, group.codes_from, index);
    const auto codes = static_cast<int>(__shfl_sync(kAllLanes, group.codes, index));
    if (lane_index() == index) {
      auto* words = reinterpret_cast<uint4*>(header(stage_));
      words[0] = group.header[0];
      words[1] = group.header[1];
#if __CUDA_ARCH__ >= 900
      barrier_expect(barrier, n_tiles * codes);
#else
      barrier_arrive(barrier);
#endif
    }
    __syncwarp();
    if (codes_too) issue_codes(group, codes, codes_from);
    __syncwarp();
    const auto scales = static_cast<int>(__shfl_sync(kAllLanes, group.scales, index));
    const std::byte* from = group.n_tile_scales + __shfl_sync(kAllLanes, group.scales_from, index);
    const int n_tile = lane_index() / NTileGroup::kLanesPerNTile;
    if (n_tile < n_tiles) {
      std::byte* to = stage_data + n_tile * scales;
#pragma unroll 1
      for (int i = lane_index() % NTileGroup::kLanesPerNTile * 16; i < scales;
           i += NTileGroup::kLanesPerNTile * 16) {
        copy_small(to + i, from, policy_);
        from += NTileGroup::kLanesPerNTile * 16;
      }
    }
    barrier_arrive_behind_copies(barrier);
  }

  const GemvPipelineShape& shape_;
  std::byte* headers_;
  std::byte* data_;
  std::uint64_t* full_;
  std::uint64_t* empty_;
  std::uint64_t* row_read_;  // completes when the row has been read
  int stage_ = 0;
  std::uint32_t phase_ = 0;
  std::uint64_t policy_ = 0;  // L2 policy of weights; producer only
  bool wrapped_ = false;      // producer only: stages are reused and must be empty
};

#else

// GemvPipeline on compute capability 7.5: copy_blocks are read from global memory.
class GemvPipeline {
 public:
  __device__ GemvPipeline(const PackedGemmArgs& args, const CopyBlockWalk& walk)
      : args_(args), pipeline_(PipelineShape{}, walk) {}
  __device__ __forceinline__ void sync_row_read() { consumer_sync(); }
  __device__ __forceinline__ std::uint32_t wait() {
    pipeline_.next(args_, nullptr, view_);
    return static_cast<std::uint32_t>(view_.k_blocks) | static_cast<std::uint32_t>(view_.flags)
                                                            << 16;
  }
  __device__ __forceinline__ void view(const std::byte* input, const std::byte*,
                                       StageView& view) const {
    view = view_;
    view.fragments = input + args_.matrices[view.matrix].input_layout * args_.input_layout_bytes;
  }
  __device__ __forceinline__ NTileRange n_tiles() const { return pipeline_.n_tiles(); }
  __device__ __forceinline__ void release() {}

 private:
  const PackedGemmArgs& args_;
  SmemPipeline<false> pipeline_;
  StageView view_;
};

#endif

}  // namespace bl::cuda
