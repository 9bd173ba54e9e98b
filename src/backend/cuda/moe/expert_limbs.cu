#include "backend/cuda/moe/expert_limbs.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {
namespace {

constexpr int kPackWarps = 8;

// Adds up the bytes of four lanes, which differ in e and r of their k (code_matrix.h), to the word
// that holds them.
__device__ __forceinline__ std::uint32_t word_of(std::uint32_t byte) {
  const int lane = lane_index();
  std::uint32_t word = byte << (8 * (2 * (lane % 2) + lane / 8 % 2));
  word |= __shfl_xor_sync(kAllLanes, word, 1);
  return word | __shfl_xor_sync(kAllLanes, word, 8);
}

// Stores the limbs of one row's k_step, whose k belong to the lanes; returns this lane's integer.
__device__ __forceinline__ int store_k_step(float x, float factor, std::byte* row) {
  const std::uint32_t number = limb_number(x, factor, 0.0f);
  const std::uint32_t high = word_of(limb_number(x, factor, 128.0f) >> 8 & 0xffu);
  const std::uint32_t low = word_of(number & 0xffu);
  const int lane = lane_index();
  if (lane / 8 % 2 == 0) {  // lanes with r = 0: those with e = 0 store the high limbs
    const int at = lane % 2 * kColumnBytes + lane % 8 / 2 * 8 + (lane < 16 ? 4 : 0);
    *reinterpret_cast<std::uint32_t*>(row + at) = lane % 2 == 0 ? high : low;
  }
  return static_cast<int>(number - __float_as_uint(kWholeNumbers));
}

// A warp packs one k_block of one row. Waits before it triggers, unlike other kernels: the GEMM
// behind it reads the sorted choices and its weights before it waits itself, so the sorting must be
// complete by then. grid (choices, k_blocks / kPackWarps)
__global__ void __launch_bounds__(kPackWarps * 32)
    pack_expert_limbs_kernel(const __grid_constant__ ExpertLimbArgs p) {
  pdl_wait();
  pdl_trigger();
  const int choice = static_cast<int>(blockIdx.x);
  const int row = row_of_choice(p.rows, choice);
  if (row < 0) return;
  const ExpertMatrix& matrix = p.table[p.rows.experts[choice]];
  const int index = static_cast<int>(blockIdx.y) * kPackWarps + warp_index();
  if (index >= matrix.view.k_block_count) return;
  const KBlock k_block = matrix.view.k_blocks[index];
  const int token = choice / p.rows.k;
  const float* x = p.x + (p.x_of_tokens ? token : row) * p.x_stride;
  const std::int32_t* features =
      matrix.feature_of_k + k_block.first_k_step * kKStepSize + lane_index();
  float values[kMaxKBlockSteps];
  std::uint32_t most = 0;
#pragma unroll
  for (int u = 0; u < kMaxKBlockSteps; ++u) {
    const int feature = u < k_block.k_steps ? features[u * kKStepSize] : -1;
    values[u] = feature < 0 ? 0.0f : x[feature];
    most = max(most, __float_as_uint(fabsf(values[u])));
  }
  const LimbFactor factor(warp_max(most));
  const int block = row / p.rows.block_rows;
  const int live = p.rows.one_token ? 1 : p.rows.rows_of_block[block];
  const int in_block = row % p.rows.block_rows;
  std::byte* record = p.limbs + block * limb_block_bytes(p.rows.block_rows, p.k_steps) +
                      std::int64_t{k_block.first_k_step} * limb_record_bytes(live);
  int sum = 0;
#pragma unroll
  for (int u = 0; u < kMaxKBlockSteps; ++u) {
    if (u >= k_block.k_steps) break;
    sum += store_k_step(values[u], factor.factor,
                        record + u * limb_record_bytes(live) + in_block * kLimbRowBytes);
  }
  sum = warp_sum(sum);
  if (lane_index() != 0) return;
  const float weight =
      p.weigh ? p.rows.weights[token * p.rows.weight_stride + choice % p.rows.k] : 1.0f;
  const float scale = factor.scale * weight;
  *reinterpret_cast<float2*>(record + live * kLimbRowBytes + in_block * kLimbEntryBytes) =
      make_float2(scale, scale * static_cast<float>(sum));
}

}  // namespace

void pack_expert_limbs(ExecContext& ctx, const ExpertLimbArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.choices),
                  static_cast<unsigned>((args.k_blocks + kPackWarps - 1) / kPackWarps));
  launch(shape_of(ctx, grid, kPackWarps * 32), pack_expert_limbs_kernel, args);
}

}  // namespace bl::cuda
