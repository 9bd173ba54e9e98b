// Rows sorted by expert times packed codes. A CTA multiplies one block of rows by one strip; its
// warps take the strip's chunks in turn and are added up in a fixed order, so that a row's result
// depends neither on the other rows nor on the size of the block.

#include <algorithm>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/code_product.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/expert_kernels.h"
#include "backend/cuda/launch.cuh"

namespace bl::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kSlotBytes = kMaxChunkBytes + 256;  // a chunk and its scales
// Floats between the tokens of a warp's sums in shared memory: lanes that write at once, of four
// tokens and eight columns, meet 32 different banks.
constexpr int kTokenStride = kStripColumns + 4;
constexpr int kPartFloats = kTokenTile * kTokenStride;

constexpr int kMostSlots = 4;
constexpr int kBarrierBytes = kWarps * kMostSlots * 8;
static_assert(kBarrierBytes % 128 == 0);

// Barriers, then a ring a warp, where the warps' sums lie afterwards.
constexpr int shared_bytes(int slots) {
  return kBarrierBytes + std::max(kWarps * slots * kSlotBytes,
                                  kWarps * kPartFloats * static_cast<int>(sizeof(float)));
}

// The chunks of one strip that a warp takes: through a ring in shared memory that bulk copies fill
// (compute capability 9 and later), or by straight reads.
class StripStream {
 public:
  __device__ StripStream(const CodeMatrixView& m, int strip, std::byte* shared, int slots)
      : m_(m),
        codes_(m.codes + strip * m.strip_bytes),
        scales_(m.scales + static_cast<std::int64_t>(strip) * m.groups * scale_bytes(m.kind)),
        next_(static_cast<int>(threadIdx.x) / 32) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const int warp = static_cast<int>(threadIdx.x) / 32;
    slots_ = slots;
    barriers_ = reinterpret_cast<std::uint64_t*>(shared) + warp * slots;
    ring_ = shared + kBarrierBytes + warp * slots * kSlotBytes;
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < slots; ++i) barrier_init(barriers_ + i, 1);
      barrier_init_fence();
    }
    __syncwarp();
    for (int i = 0; i < slots; ++i) issue(i);
#endif
  }

  // Chunk `index` of the strip; the warp's first, then the following ones.
  __device__ __forceinline__ Chunk chunk_at(int index) const {
    const uint4 bits = *reinterpret_cast<const uint4*>(m_.chunks + index);
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = bits;
    return chunk;
  }

  __device__ void wait(const Chunk& chunk, const std::byte*& codes, const std::byte*& scales) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    barrier_wait(barriers_ + slot_, phase_);
    codes = ring_ + slot_ * kSlotBytes;
    scales = codes + kMaxChunkBytes;
#else
    codes = codes_of(chunk);
    scales = scales_of(chunk);
#endif
  }

  // The chunk has been used: its slot takes another one.
  __device__ void release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    issue(slot_);
    if (++slot_ == slots_) {
      slot_ = 0;
      phase_ ^= 1u;
    }
#endif
  }

 private:
  __device__ __forceinline__ const std::byte* codes_of(const Chunk& chunk) const {
    return codes_ + static_cast<std::int64_t>(chunk.offset) * 256;
  }
  __device__ __forceinline__ const std::byte* scales_of(const Chunk& chunk) const {
    return scales_ + static_cast<std::int64_t>(chunk.group) * scale_bytes(m_.kind);
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // Starts the copy of the warp's next chunk, if there is one.
  __device__ void issue(int slot) {
    if (next_ >= m_.chunk_count) return;
    if (threadIdx.x % 32 == 0) {
      const Chunk chunk = chunk_at(next_);
      std::byte* to = ring_ + slot * kSlotBytes;
      const int bytes = chunk.units * unit_bytes(chunk.bits);
      barrier_expect(barriers_ + slot, bytes + scale_bytes(m_.kind));
      bulk_copy(to, codes_of(chunk), bytes, barriers_ + slot);
      bulk_copy(to + kMaxChunkBytes, scales_of(chunk), scale_bytes(m_.kind), barriers_ + slot);
    }
    next_ += kWarps;
  }
  std::uint64_t* barriers_ = nullptr;
  std::byte* ring_ = nullptr;
  int slots_ = 0;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
#endif
  const CodeMatrixView& m_;
  const std::byte* codes_;
  const std::byte* scales_;
  int next_;
};

// This warp's sums over its chunks of the strip.
template <int Tiles>
__device__ __forceinline__ void multiply_strip(const CodeMatrixView& m, StripStream& stream,
                                               const LaneInput<Tiles>& input, Sums<Tiles>& totals) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int c = static_cast<int>(threadIdx.x) / 32; c < m.chunk_count; c += kWarps) {
    const Chunk chunk = stream.chunk_at(c);
    const std::byte* codes = nullptr;
    const std::byte* scales = nullptr;
    ChunkSums<Tiles> sums;
    multiply_chunk(
        chunk, input,
        [&] {
          stream.wait(chunk, codes, scales);
          return codes;
        },
        sums);
    LaneScales lane_scales;
    lane_scales.load(m, scales, chunk, lane);
    stream.release();
    apply_scales(lane_scales, sums, totals);
  }
}

// One block's results, tile by tile. `parts`: [warps][8 tokens][kTokenStride].
template <int Tiles, class Store>
__device__ __forceinline__ void add_up(const Sums<Tiles>& totals, float* parts, int live,
                                       const Store& store) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* mine = parts + warp * kPartFloats;
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
    const int rows = min(live - n * kTokenTile, kTokenTile);
    if (rows <= 0) break;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int token = 2 * (lane % 4) + c % 2;
        mine[token * kTokenStride + 16 * i + 8 * (c / 2) + lane / 4] = totals.at[n][i][c];
      }
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x); e < rows * kStripColumns; e += kThreads) {
      const int row = e / kStripColumns;
      const int column = e % kStripColumns;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        sum += parts[w * kPartFloats + row * kTokenStride + column];
      }
      store(n * kTokenTile + row, column, sum);
    }
    __syncthreads();
  }
}

// grid (blocks, strips of the first matrix and the second). It reads the sorted choices before it
// waits for the kernel before it, which by then has waited for theirs (expert_prepare.cu).
template <int Tiles>
__global__ void __launch_bounds__(kThreads, Tiles == 1 ? 2 : 1)
    expert_code_kernel(const __grid_constant__ ExpertProductArgs p, int slots) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint2 matrix_words[sizeof(ExpertMatrix) / sizeof(uint2)];
  allow_next();
  const int block = static_cast<int>(blockIdx.x);
  const int expert = __ldcg(p.rows.expert_of_block + block);
  int strip = static_cast<int>(blockIdx.y);
  const int first_strips = (p.matrices[0].out + kStripColumns - 1) / kStripColumns;
  const int which = strip < first_strips ? 0 : 1;
  if (which == 1) strip -= first_strips;
  const ExpertProductArgs::Matrix& to = p.matrices[which];
  if (expert >= 0 && threadIdx.x < sizeof(ExpertMatrix) / sizeof(uint2)) {
    matrix_words[threadIdx.x] = reinterpret_cast<const uint2*>(to.table + expert)[threadIdx.x];
  }
  __syncthreads();
  const auto& matrix = *reinterpret_cast<const ExpertMatrix*>(matrix_words);
  if (expert < 0 || matrix.view.codes == nullptr) {
    dependency_wait();
    return;
  }
  StripStream stream(matrix.view, strip, shared, slots);
  dependency_wait();

  const int live = p.rows.rows_of_block[block];
  const int first_row = block * Tiles * kTokenTile;
  const Fragments fragments{reinterpret_cast<const uint4*>(to.fragments), p.units};
  Sums<Tiles> totals;
  totals.clear();
  LaneInput<Tiles> input;
  input.open(fragments, block * Tiles, first_row + live, static_cast<int>(threadIdx.x) % 32);
  multiply_strip(matrix.view, stream, input, totals);
  __syncthreads();
  const float* bias = matrix.bias;
  const int out = matrix.view.out;
  add_up(totals, reinterpret_cast<float*>(shared + kBarrierBytes), live,
         [&](int row, int column, float sum) {
           column += strip * kStripColumns;
           if (column >= out) return;
           float value = sum * p.row_scales[first_row + row];
           if (bias != nullptr) value += bias[column];
           p.out[(first_row + row) * p.out_stride + to.first_column + column] = value;
         });
}
static_assert(sizeof(ExpertMatrix) % sizeof(uint2) == 0 && alignof(ExpertMatrix) >= alignof(uint2));
static_assert(sizeof(ExpertMatrix) / sizeof(uint2) <= kThreads);

// As many as let `ctas` share a multiprocessor.
int slots_for(const DeviceFacts& facts, int ctas) {
  if (!facts.dependent_launch()) return 0;  // no bulk copies either
  constexpr int kReserved = 2048;           // a CTA's own and the system's
  const int bytes =
      static_cast<int>(std::min(facts.shared_bytes_per_cta, facts.shared_bytes_per_multiprocessor /
                                                                static_cast<unsigned>(ctas)));
  return std::clamp((bytes - kReserved - kBarrierBytes) / (kWarps * kSlotBytes), 1, kMostSlots);
}

template <int Tiles>
void start(ExecContext& ctx, const ExpertProductArgs& args) {
  const int slots = slots_for(cuda_ops_of(ctx).backend->facts(), Tiles == 1 ? 2 : 1);
  const auto shared = static_cast<std::size_t>(shared_bytes(slots));
  BL_CUDA_CHECK(cudaFuncSetAttribute(expert_code_kernel<Tiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)));
  int strips = 0;
  for (int i = 0; i < args.count; ++i) {
    strips += (args.matrices[i].out + kStripColumns - 1) / kStripColumns;
  }
  const dim3 grid(static_cast<unsigned>(args.rows.blocks), static_cast<unsigned>(strips));
  launch(shape_of(ctx, grid, kThreads, shared), expert_code_kernel<Tiles>, args, slots);
}

}  // namespace

void expert_code_product(ExecContext& ctx, const ExpertProductArgs& args) {
  if (args.rows.block_rows == kSmallBlock) {
    start<1>(ctx, args);
  } else {
    start<4>(ctx, args);
  }
}

}  // namespace bl::cuda
