#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/gemm/activations/activate_staged.h"
#include "backend/cuda/gemm/activations/pack_staged.h"
#include "backend/cuda/gemm/fusion.h"
#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {
namespace {

template <int kPack>
struct Activate {
  Rows<const float> gate;
  Rows<const float> up;  // data may be null
  Rows<float> out;
  ActivationParameters parameters;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const bool gated = up.data != nullptr;
    const auto g = load_pack<kPack>(gate[row] + column);
    Pack<float, kPack> u{};
    if (gated) u = load_pack<kPack>(up[row] + column);
    Pack<float, kPack> result;
#pragma unroll
    for (int i = 0; i < kPack; ++i) result.at[i] = activated(parameters, g.at[i], u.at[i], gated);
    store_pack(out[row] + column, result);
  }
};

}  // namespace

void activate(ExecContext& ctx, const ActivateArgs& args) {
  const bool stage_out = args.staged_out != nullptr && is_staged_fragments(ctx, *args.staged_out);
  if (args.staged_out != nullptr && !stage_out) {
    activate_into_halves(ctx, args, false);
    return;
  }
  const bool fours = allows_vector_access(args.gate, 4) && allows_vector_access(args.up, 4) &&
                     allows_vector_access(args.out, 4);
  for_each_pack<Activate>(ctx, args.gate, fours, rows_of<const float>(args.gate),
                          rows_of<const float>(args.up), rows_of<float>(args.out),
                          activation_parameters(args));
  if (stage_out) pack_staged(ctx, args.out, *args.staged_out);
}

}  // namespace bl::cuda
