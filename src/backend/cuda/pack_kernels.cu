#include "backend/cuda/pack_kernels.h"

#include "backend/cuda/cuda_check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 128;

// grid (units, strips): a CTA a unit.
__global__ void pack_codes_kernel(CodeSource source, PackTarget target) {
  const auto unit = static_cast<std::int64_t>(blockIdx.x);
  const auto strip = static_cast<std::int64_t>(blockIdx.y);
  const int bits = target.bits_of_unit[unit];
  std::uint32_t* words = target.codes + strip * target.strip_words + target.offset_of_unit[unit];
  for (int word = static_cast<int>(threadIdx.x); word < unit_bytes(bits) / 4; word += kThreads) {
    words[word] = packed_word(source, unit, bits, strip * kStripColumns, word);
  }
}

// grid (groups, strips).
__global__ void pack_scales_kernel(ScaleSource source, PackTarget target) {
  const auto group = static_cast<std::int64_t>(blockIdx.x);
  const auto strip = static_cast<std::int64_t>(blockIdx.y);
  const int count = scale_bytes(target.kind) / 4;
  std::uint32_t* words = target.scales + (strip * target.groups + group) * count;
  for (int word = static_cast<int>(threadIdx.x); word < count; word += kThreads) {
    words[word] = packed_scale_word(source, target.kind, group, strip * kStripColumns, word);
  }
}

}  // namespace

void launch_pack_codes(const CodeSource& source, const PackTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.units), static_cast<unsigned>(target.strips));
  pack_codes_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

void launch_pack_scales(const ScaleSource& source, const PackTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.groups), static_cast<unsigned>(target.strips));
  pack_scales_kernel<<<grid, kThreads, 0, stream>>>(source, target);
  BL_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bl::cuda
