#include "backend/cuda/gemm/packed_gemm_args.h"

#include <algorithm>

#include "base/check.h"

namespace bl::cuda {

bool has_no_zeros(const PackedGemmArgs& args) {
  return std::all_of(args.matrices, args.matrices + args.count,
                     [](const PackedGemmMatrix& m) { return m.view.kind == ScaleKind::kGptq; });
}

WidthSet widths_of(const PackedGemmArgs& args) {
  WidthSet widths = 0;
  for (int i = 0; i < args.count; ++i) widths |= args.matrices[i].widths;
  return widths;
}

void check_packed_gemm(const PackedGemmArgs& args) {
  const auto is_exl2 = [](const PackedGemmMatrix& m) { return m.view.kind == ScaleKind::kExl2; };
  for (int i = 1; i < args.count; ++i) {
    BL_CHECK(is_exl2(args.matrices[i]) == is_exl2(args.matrices[0]));
  }
  BL_CHECK(!args.gated ||
           (args.count == 2 && args.matrices[0].view.n_tiles == args.matrices[1].view.n_tiles));
}

int max_skinny_tokens(const DeviceFacts& facts) {
  // Room for sixteen tokens in any format: sums of 3 n_tiles and one stage of the pipeline.
  constexpr std::size_t kWanted = 180 << 10;
  return facts.shared_bytes_per_cta >= kWanted ? kMaxSkinnyTokens : kTokenTile;
}

}  // namespace bl::cuda
