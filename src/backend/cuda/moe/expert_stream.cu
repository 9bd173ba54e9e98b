#include "backend/cuda/moe/expert_stream.h"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/moe/expert_limbs.cuh"

namespace bl::cuda {
namespace {

constexpr int kBarrierBytes = 128;
static_assert(2 * kMaxStages * sizeof(std::uint64_t) <= kBarrierBytes);
constexpr int kThreads = kConsumerThreads + 32;

BL_HD constexpr int n_tiles_of(int out) { return (out + kNTileColumns - 1) / kNTileColumns; }
BL_HD constexpr int groups_of(const ExpertStreamArgs& p) {
  return (n_tiles_of(p.out) + p.item_n_tiles - 1) / p.item_n_tiles;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Scales of experts that all have codes of one kind, which is uniform in a launch.
template <bool kExl2>
struct UniformScales;

template <>
struct UniformScales<true> : ExlScales {
  __device__ __forceinline__ UniformScales(const ExpertStreamArgs&, const KBlock& k_block, int lane)
      : ExlScales(CodeMatrixView{}, k_block, lane, 1.0f) {}
};

template <>
struct UniformScales<false> : GptqScales {
  __device__ __forceinline__ UniformScales(const ExpertStreamArgs& p, const KBlock&, int)
      : GptqScales(p.kind, static_cast<float>(p.zero), 1.0f) {}
};

// totals[h] += scale · (number · limb scale − zero · Σx) for one n_tile and token tile of a
// k_block.
__device__ __forceinline__ void add_scaled(const LaneScales& scales, const float2& limb_scale,
                                           const int (&sums)[4], float (&totals)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Fits into 32 bits with codes of any width, since halves were separated.
    const auto number = static_cast<float>(sums[2 * h] * 256 + sums[2 * h + 1]);
    totals[h] += scales.scale[h] * (number * limb_scale.x - scales.zero[h] * limb_scale.y);
  }
}

// An item of a CTA. Blocks in use come first, so the first item without an expert ends the walk.
struct Item {
  int expert = -1;
  int live = 0;
  int block = 0;
  int first_row = 0;
  int first_n_tile = 0;
  int n_tiles = 0;
};

// An item whose expert is still being loaded, so that nobody waits for it before it is needed.
class NextItem {
 public:
  __device__ __forceinline__ void load(const ExpertStreamArgs& p, int number) {
    number_ = number;
    const int block = number / groups_of(p);
    expert_ = -1;
    if (block >= p.rows.blocks) return;
    expert_ = __ldcg((p.rows.one_token ? p.rows.experts : p.rows.expert_of_block) + block);
    if (!p.rows.one_token) live_ = __ldcg(p.rows.rows_of_block + block);
  }
  __device__ __forceinline__ Item get(const ExpertStreamArgs& p) const {
    const int groups = groups_of(p);
    Item item;
    item.block = number_ / groups;
    if (item.block >= p.rows.blocks) return item;
    item.expert = expert_;
    item.live = live_;
    if (p.rows.one_token) {  // the row of no expert is not read
      item.expert = exists(p.rows, expert_) ? expert_ : 0;
      item.live = 1;
    }
    item.first_row = item.block * p.rows.block_rows;
    item.first_n_tile = number_ % groups * p.item_n_tiles;
    item.n_tiles = min(p.item_n_tiles, n_tiles_of(p.out) - item.first_n_tile);
    return item;
  }

 private:
  int number_ = 0;
  int expert_ = -1;
  int live_ = 0;
};

// The producer warp: copies everything that the CTA's items read. `args` is in shared memory. The
// views of an item's matrices are loaded while the item before is copied.
class ItemProducer {
 public:
  __device__ __forceinline__ ItemProducer(const ExpertStreamArgs& p, PackedGemmArgs& args)
      : p_(p), args_(args) {}

  __device__ __forceinline__ void run(SmemPipeline<true>& pipeline) {
    const auto step = static_cast<int>(gridDim.x);
    auto number = static_cast<int>(blockIdx.x);
    NextItem after;
    after.load(p_, number);
    Item next = after.get(p_);
    load_views(next);
    after.load(p_, number + step);
    while (next.expert >= 0) {
      const Item item = next;
      store_views(item);
      pipeline.set_input(limb_record_bytes(item.live));
      next = after.get(p_);
      load_views(next);
      number += step;
      after.load(p_, number + step);
      pipeline.produce(args_, CopyBlockWalk(args_, item.first_n_tile,
                                            item.first_n_tile + item.n_tiles, p_.item_n_tiles));
    }
  }

 private:
  static constexpr int kWords = sizeof(CodeMatrixView) / sizeof(uint2);
  static_assert(sizeof(CodeMatrixView) % sizeof(uint2) == 0 && kWords <= 32);

  __device__ __forceinline__ void load_views(const Item& item) {
    if (item.expert < 0 || lane_index() >= kWords) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p_.count) break;
      words_[i] = __ldg(reinterpret_cast<const uint2*>(&p_.matrices[i].table[item.expert].view) +
                        lane_index());
    }
  }
  __device__ __forceinline__ void store_views(const Item& item) {
    __syncwarp();  // the item before has been issued
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p_.count) break;
      CodeMatrixView& m = args_.matrices[i].view;
      if (lane_index() == 0) {
        args_.matrices[i].fragments = reinterpret_cast<const std::uint32_t*>(
            p_.matrices[i].limbs + item.block * limb_block_bytes(p_.rows.block_rows, p_.k_steps));
      }
      if (lane_index() < kWords) reinterpret_cast<uint2*>(&m)[lane_index()] = words_[i];
      __syncwarp();
      const std::int64_t before = p_.matrices[i].first_n_tile;
      if (lane_index() == 0 && before > 0) {  // n_tiles count from the first of this result
        m.codes += before * m.n_tile_bytes;
        m.scales += before * scale_stride(m.kind, m.groups);
        m.n_tiles -= p_.matrices[i].first_n_tile;
      }
    }
    __syncwarp();
  }

  const ExpertStreamArgs& p_;
  PackedGemmArgs& args_;
  uint2 words_[2]{};
};

// A consumer warp multiplies NTiles n_tiles of an item, every parts-th k_block.
template <int NTiles, int Tiles, bool kExl2>
class StreamConsumer {
 public:
  // `partials`: shared memory for the sums of all warps.
  __device__ __forceinline__ StreamConsumer(const ExpertStreamArgs& p, const PackedGemmArgs& args,
                                            float* partials)
      : p_(p),
        args_(args),
        lane_(lane_index()),
        group_(warp_index() % p.item_groups),
        part_(warp_index() / p.item_groups),
        partials_(partials) {}

  __device__ __forceinline__ void run(SmemPipeline<true>& pipeline) {
    NextItem next;
    auto number = static_cast<int>(blockIdx.x);
    next.load(p_, number);
    pdl_wait();
    for (Item item = next.get(p_); item.expert >= 0; item = next.get(p_)) {
      number += static_cast<int>(gridDim.x);
      next.load(p_, number);
      multiply(item, pipeline);
      if (part_ < p_.parts) store(item);
    }
  }

 private:
  // The sums of a warp's rows, each of its n_tiles and tiles: column 8h + lane / 4 of row lane % 4.
  struct Totals {
    float at[NTiles][Tiles][2];
  };

  // The sums of matrix m of a warp of this group.
  __device__ __forceinline__ float* slot(int part, int m) const {
    return partials_ + ((part * p_.item_groups + group_) * p_.count + m) * slot_floats();
  }
  __device__ __forceinline__ int slot_floats() const {
    return NTiles * kNTileColumns * p_.rows.block_rows;
  }

  __device__ __forceinline__ void multiply(const Item& item, SmemPipeline<true>& pipeline) {
    const bool works = group_ * NTiles < item.n_tiles && part_ < p_.parts;
    ExpertLimbReader<Tiles> input(item.live);
    pipeline.set_input(input.record_bytes());
    StageView view;
    for (int m = 0; m < p_.count; ++m) {
      Totals totals{};
      int k_block = part_;
      do {
        pipeline.next(args_, nullptr, view);
        if (works) multiply_k_blocks(view, input, k_block, totals);
        pipeline.release();
      } while ((view.flags & kEndsNTiles) == 0);
      if (m == 0) sync_group();  // the sums of the item before have been read
      if (works) keep(totals, item.live, slot(part_, m));
    }
    sync_group();
  }

  // totals += this warp's k_blocks of a stage; `next` counts from the stage's first.
  __device__ __forceinline__ void multiply_k_blocks(const StageView& view,
                                                    ExpertLimbReader<Tiles>& input, int& next,
                                                    Totals& totals) {
    const int first = group_ * NTiles;
    const int n_tiles = min(NTiles, view.n_tiles - first);
    const std::byte* codes = view.codes + first * view.code_stride;
    const std::byte* scales = view.scales + first * view.scale_stride;
    for (; next < view.k_blocks; next += p_.parts) {
      KBlock k_block;
      *reinterpret_cast<uint4*>(&k_block) = view.k_block_words[next];
      input.open(view.fragments + k_block.first_k_step * view.k_step_stride);
      LimbSums<NTiles * Tiles> sums;
      multiply_limbs<kAllWidths>(
          k_block.bits,
          {codes + k_block.offset * k_step_bytes(1), view.code_stride, n_tiles, k_block.k_steps},
          input, sums);
      const UniformScales<kExl2> of_group(p_, k_block, lane_);
      const std::byte* at = scales + k_block.group * UniformScales<kExl2>::bytes(p_.kind);
#pragma unroll
      for (int i = 0; i < NTiles; ++i) {
        const LaneScales of = of_group.of(at + min(i, n_tiles - 1) * view.scale_stride, lane_);
#pragma unroll
        for (int n = 0; n < Tiles; ++n) {
          add_scaled(of, input.scale(n), sums.at[i * Tiles + n], totals.at[i][n]);
        }
      }
    }
    next -= view.k_blocks;
  }

  // Stores this warp's sums as [n_tiles][live rows][16].
  __device__ __forceinline__ void keep(const Totals& totals, int live, float* to) const {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int row = n * kLimbRows + lane_ % 4;
      if (row >= live) continue;
#pragma unroll
      for (int i = 0; i < NTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          to[(i * live + row) * kNTileColumns + 8 * h + lane_ / 4] = totals.at[i][n][h];
        }
    }
  }

  // A barrier of the warps of this group.
  __device__ __forceinline__ void sync_group() const {
    if (part_ >= p_.parts) return;
    asm volatile("bar.sync %0, %1;" ::"r"(2 + group_), "r"(32 * p_.parts) : "memory");
  }

  // Element e of [n_tiles][live rows][16]: the sum of all parts, in their order.
  __device__ __forceinline__ float sum_of(int m, int e) const {
    const float* at = slot(0, m) + e;
    const int stride = p_.item_groups * p_.count * slot_floats();
    float sum = 0.0f;
    for (int part = 0; part < p_.parts; ++part) sum += at[part * stride];
    return sum;
  }

  __device__ __forceinline__ float with_bias(float value, int m, const Item& item,
                                             int column) const {
    if (!p_.has_bias) return value;
    const float* bias = p_.matrices[m].table[item.expert].bias;
    return bias == nullptr ? value
                           : value + bias[p_.matrices[m].first_n_tile * kNTileColumns + column];
  }

  // Adds the sums of all parts, and stores the results.
  __device__ __forceinline__ void store(const Item& item) const {
    const int n_tiles = min(NTiles, item.n_tiles - group_ * NTiles);
    const int row_floats = item.live * kNTileColumns;
    for (int e = part_ * 32 + lane_; e < n_tiles * row_floats; e += 32 * p_.parts) {
      const int n_tile = e / row_floats;
      const int row = item.first_row + e % row_floats / kNTileColumns;
      const int column =
          (item.first_n_tile + group_ * NTiles + n_tile) * kNTileColumns + e % kNTileColumns;
      if (column < p_.out) p_.to[row * p_.to_stride + column] = result(item, e, column);
    }
  }

  __device__ __forceinline__ float result(const Item& item, int e, int column) const {
    const float value = with_bias(sum_of(0, e), 0, item, column);
    if (!p_.activates) return value;
    const bool gated = p_.count == 2;
    const float up = gated ? with_bias(sum_of(1, e), 1, item, column) : 0.0f;
    return activated(p_.activation, value, up, gated);
  }

  const ExpertStreamArgs& p_;
  const PackedGemmArgs& args_;
  int lane_;
  int group_;  // of NTiles n_tiles of an item
  int part_;
  float* partials_;
};

#endif

// Reads the sorted choices before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_prepare.cu). Shared memory: barriers, partial sums, the pipeline.
template <int NTiles, int Tiles, bool kExl2>
__global__ void __launch_bounds__(kThreads, 1)
    expert_stream_kernel(const __grid_constant__ ExpertStreamArgs p,
                         const __grid_constant__ PipelineShape shape,
                         const __grid_constant__ int partial_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte args_bytes[sizeof(PackedGemmArgs)];
  pdl_trigger();
  SmemPipeline<true> pipeline(shape, shared + kBarrierBytes + partial_bytes,
                              reinterpret_cast<std::uint64_t*>(shared));
  auto& args = *reinterpret_cast<PackedGemmArgs*>(args_bytes);
  if (threadIdx.x == 0) {
    pipeline.init();
    args.gated = p.count == 2;
    args.count = p.count;
    args.input_layout_bytes = 0;
    args.first_token = 0;
    for (int i = 0; i < p.count; ++i) args.matrices[i].input_layout = 0;
  }
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    ItemProducer(p, args).run(pipeline);
    pdl_wait();
    return;
  }
  StreamConsumer<NTiles, Tiles, kExl2>(p, args, reinterpret_cast<float*>(shared + kBarrierBytes))
      .run(pipeline);
#endif
}

// N_tiles of a warp, and groups of them in an item. The producer warp has lanes for eight n_tiles.
struct ItemShape {
  int warp_n_tiles;
  int groups;
};
constexpr ItemShape kItemShapes[] = {{3, 2}, {3, 1}, {1, 7}, {1, 5}, {1, 3}};
constexpr int kMostJoined = 6;  // copy_blocks of a stage of one n_tile

// Returns about how many instructions a consumer warp executes for an item.
double item_instructions(const ExpertStreamArgs& args, const ItemShape& shape) {
  constexpr double kItem = 250;   // adding the parts up, and what begins an item
  constexpr double kStage = 50;   // passing a stage
  constexpr double kKBlock = 30;  // and kScales for each n_tile
  constexpr double kScales = 15;
  constexpr double kKStep = 8.5;  // of an n_tile
  const int parts = kConsumerWarps / shape.groups;
  const int k_blocks = (args.k_blocks + parts - 1) / parts;
  const double k_block_steps = static_cast<double>(args.k_steps) / std::max(args.k_blocks, 1);
  const int copy_blocks = (args.k_steps + kMaxCopyBlockSteps - 1) / kMaxCopyBlockSteps;
  const int joined = std::max(kMostJoined / (shape.warp_n_tiles * shape.groups), 1);
  const int stages = (copy_blocks + joined - 1) / joined;
  const double of_matrix =
      stages * kStage +
      k_blocks * (kKBlock + shape.warp_n_tiles * (kScales + kKStep * k_block_steps));
  return kItem + args.count * of_matrix;
}

// Chooses the shape of items that gives the busiest CTA the least to do; the first if equal. Large
// blocks leave registers and shared memory for the sums of one n_tile a warp.
ItemShape choose_shape(const DeviceFacts& facts, ExpertStreamArgs& args) {
  double best = 0;
  ItemShape chosen{};
  for (const ItemShape& shape : kItemShapes) {
    if (args.rows.block_rows == kStreamBlocks[2] && shape.warp_n_tiles > 1) continue;
    args.item_n_tiles = shape.warp_n_tiles * shape.groups;
    const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
    const std::int64_t turns = (items + facts.multiprocessors - 1) / facts.multiprocessors;
    const double cost = static_cast<double>(turns) * item_instructions(args, shape);
    if (best == 0 || cost < best) {
      best = cost;
      chosen = shape;
    }
  }
  args.item_n_tiles = chosen.warp_n_tiles * chosen.groups;
  args.item_groups = chosen.groups;
  args.parts = kConsumerWarps / chosen.groups;
  return chosen;
}

template <int NTiles, int Tiles, bool kExl2>
void start(ExecContext& ctx, const ExpertStreamArgs& args) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  PipelineShape shape;
  shape.input_bytes = limb_record_bytes(args.rows.one_token ? 1 : args.rows.block_rows);
  shape.most_joined = args.rows.block_rows == kStreamBlocks[0] ? kMostJoined : 1;
  shape.early_stages = kMaxStages;
  for (int i = 0; i < args.count; ++i) {
    shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  const int partial_bytes = kConsumerWarps * args.count * NTiles * args.rows.block_rows *
                            kNTileColumns * static_cast<int>(sizeof(float));
  constexpr int kReserved = 3072;  // static shared memory of the CTA, and the system's
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
  shape.fill(bytes - kBarrierBytes - partial_bytes, std::max(args.item_n_tiles, kMostJoined));
  const auto kernel = expert_stream_kernel<NTiles, Tiles, kExl2>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(items, facts.multiprocessors));
  launch(shape_of(ctx, dim3(ctas), kThreads, static_cast<std::size_t>(bytes)), kernel, args, shape,
         partial_bytes);
}

template <bool kExl2>
void start(ExecContext& ctx, const ExpertStreamArgs& args, const ItemShape& shape) {
  const bool wide = shape.warp_n_tiles == 3;
  if (args.rows.block_rows == kStreamBlocks[2]) return start<1, 4, kExl2>(ctx, args);
  if (args.rows.block_rows == kStreamBlocks[1]) {
    return wide ? start<3, 2, kExl2>(ctx, args) : start<1, 2, kExl2>(ctx, args);
  }
  return wide ? start<3, 1, kExl2>(ctx, args) : start<1, 1, kExl2>(ctx, args);
}

}  // namespace

void expert_stream_gemm(ExecContext& ctx, const ExpertStreamArgs& args) {
  ExpertStreamArgs with = args;
  const ItemShape shape = choose_shape(cuda_device(ctx).facts(), with);
  if (args.kind == ScaleKind::kExl2) {
    start<true>(ctx, with, shape);
  } else {
    start<false>(ctx, with, shape);
  }
}

}  // namespace bl::cuda
