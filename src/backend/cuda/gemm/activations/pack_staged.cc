#include "backend/cuda/gemm/activations/pack_staged.h"

#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/gemm/activations/pack_activations.h"
#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {

StagedFragments staged_fragments_of(const StagedInput& staged) {
  const CodeWeights& codes = *cuda_matrix(staged.reader).codes();
  return {staged.rows.as<std::uint16_t>(), staged.row_scales, codes.fragment_offset_of_feature,
          codes.view.k_steps, static_cast<std::int32_t>(staged.rows.rows())};
}

void pack_staged(ExecContext& ctx, const TensorView& x, const StagedInput& staged) {
  PackActivationsArgs args;
  args.x = x;
  args.count = 1;
  args.targets[0] = fragment_target_of(*cuda_matrix(staged.reader).codes());
  args.targets[0].fragments = staged.rows.as<std::uint32_t>();
  args.tile = max_skinny_tokens(cuda_device(ctx).facts());
  args.sums = false;
  args.row_scales = staged.row_scales;
  args.encode_row_scales = true;
  pack_activations(ctx, args);
}

}  // namespace bl::cuda
