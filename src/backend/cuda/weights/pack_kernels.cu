#include "backend/cuda/weights/pack_kernels.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kCtaStrips = 8;
constexpr int kCtaColumns = kCtaStrips * kStripColumns;
static_assert(kCtaColumns == kThreads);

// grid (units, strips / 8): a CTA reads a unit of eight strips, a column a thread, so that a warp
// reads whole lines of the file's rows, and writes them word by word.
__global__ void __launch_bounds__(kThreads)
    pack_codes_kernel(CodeSource source, PackTarget target) {
  __shared__ std::uint8_t codes[kUnitSlots * kCtaColumns];
  const auto unit = static_cast<std::int64_t>(blockIdx.x);
  const int first_strip = static_cast<int>(blockIdx.y) * kCtaStrips;
  const int bits = target.bits_of_unit[unit];
  const int column = static_cast<int>(threadIdx.x);
  for (int slot = 0; slot < kUnitSlots; ++slot) {
    codes[slot * kCtaColumns + column] = static_cast<std::uint8_t>(
        source_code(source, unit, bits, slot, std::int64_t{first_strip} * kStripColumns + column));
  }
  __syncthreads();
  const int unit_words = unit_bytes(bits) / 4;
  const int strips = min(kCtaStrips, target.strips - first_strip);
  for (int e = static_cast<int>(threadIdx.x); e < strips * unit_words; e += kThreads) {
    const int strip = e / unit_words;
    const int word = e % unit_words;
    target.codes[(first_strip + strip) * target.strip_words + target.offset_of_unit[unit] + word] =
        packed_word(codes + strip * kStripColumns, kCtaColumns, bits, word);
  }
}

// grid (words of a group over all strips, groups): a word a thread.
__global__ void __launch_bounds__(kThreads)
    pack_scales_kernel(ScaleSource source, PackTarget target) {
  const int words = scale_bytes(target.kind) / 4;
  const int e = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const std::int64_t strip = e / words;
  if (strip >= target.strips) return;
  const int word = e % words;
  const auto group = static_cast<std::int64_t>(blockIdx.y);
  target.scales[strip * (scale_stride(target.kind, target.groups) / 4) + group * words + word] =
      packed_scale_word(source, target.kind, group, strip * kStripColumns, word);
}

}  // namespace

void launch_pack_codes(const CodeSource& source, const PackTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.units),
                  static_cast<unsigned>((target.strips + kCtaStrips - 1) / kCtaStrips));
  pack_codes_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

void launch_pack_scales(const ScaleSource& source, const PackTarget& target, cudaStream_t stream) {
  const int words = target.strips * (scale_bytes(target.kind) / 4);
  const dim3 grid(static_cast<unsigned>((words + kThreads - 1) / kThreads),
                  static_cast<unsigned>(target.groups));
  pack_scales_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bl::cuda
