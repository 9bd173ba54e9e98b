#include "backend/cuda/weights/pack_kernels.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kCtaNTiles = 8;
constexpr int kCtaColumns = kCtaNTiles * kNTileColumns;
static_assert(kCtaColumns == kThreads);

// grid (k_steps, n_tiles / 8): a CTA reads a k_step of eight n_tiles, a column a thread, so that a
// warp reads whole lines of the file's rows, and writes it word by word.
__global__ void __launch_bounds__(kThreads)
    pack_codes_kernel(CodeSource source, PackTarget target) {
  __shared__ std::uint8_t codes[kKStepSize * kCtaColumns];
  const auto k_step = static_cast<std::int64_t>(blockIdx.x);
  const int first_n_tile = static_cast<int>(blockIdx.y) * kCtaNTiles;
  const int bits = target.bits_of_k_step[k_step];
  const int column = static_cast<int>(threadIdx.x);
  for (int k = 0; k < kKStepSize; ++k) {
    codes[k * kCtaColumns + column] = static_cast<std::uint8_t>(
        source_code(source, k_step, bits, k, std::int64_t{first_n_tile} * kNTileColumns + column));
  }
  __syncthreads();
  const int k_step_words = k_step_bytes(bits) / 4;
  const int n_tiles = min(kCtaNTiles, target.n_tiles - first_n_tile);
  for (int e = static_cast<int>(threadIdx.x); e < n_tiles * k_step_words; e += kThreads) {
    const int n_tile = e / k_step_words;
    const int word = e % k_step_words;
    target.codes[(first_n_tile + n_tile) * target.n_tile_words + target.offset_of_k_step[k_step] +
                 word] = packed_word(codes + n_tile * kNTileColumns, kCtaColumns, bits, word);
  }
}

// grid (words of a group in all n_tiles, groups): a word a thread.
__global__ void __launch_bounds__(kThreads)
    pack_scales_kernel(ScaleSource source, PackTarget target) {
  const int words = scale_bytes(target.kind) / 4;
  const int e = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const std::int64_t n_tile = e / words;
  if (n_tile >= target.n_tiles) return;
  const int word = e % words;
  const auto group = static_cast<std::int64_t>(blockIdx.y);
  target.scales[n_tile * (scale_stride(target.kind, target.groups) / 4) + group * words + word] =
      packed_scale_word(source, target.kind, group, n_tile * kNTileColumns, word);
}

}  // namespace

void launch_pack_codes(const CodeSource& source, const PackTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.k_steps),
                  static_cast<unsigned>((target.n_tiles + kCtaNTiles - 1) / kCtaNTiles));
  pack_codes_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

void launch_pack_scales(const ScaleSource& source, const PackTarget& target, cudaStream_t stream) {
  const int words = target.n_tiles * (scale_bytes(target.kind) / 4);
  const dim3 grid(static_cast<unsigned>((words + kThreads - 1) / kThreads),
                  static_cast<unsigned>(target.groups));
  pack_scales_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bl::cuda
