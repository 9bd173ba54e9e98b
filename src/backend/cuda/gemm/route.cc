#include "backend/cuda/gemm/route.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/gemm/activations/staged_input.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

static_assert(kStagedTileTokens == kMaxSkinnyTokens);

bool all_have_codes(const MatmulArgs& gemm) {
  return gemm.outputs.size() <= kMaxMatrices &&
         std::all_of(gemm.outputs.begin(), gemm.outputs.end(),
                     [](const MatmulOutput& output) { return has_codes(output.weight); });
}

bool have_codes_of_one_format(const MatmulArgs& gemm) {
  return all_have_codes(gemm) &&
         std::all_of(gemm.outputs.begin(), gemm.outputs.end(), [&](const MatmulOutput& output) {
           return is_exl2(output.weight) == is_exl2(gemm.outputs[0].weight);
         });
}

// pack_activations() and the GEMV can both normalise x, but only by RMS without a bias.
bool packing_can_fuse_norm(const MatmulArgs& gemm) {
  const NormArgs& norm = *gemm.prologue.norm;
  return norm.kind == NormKind::kRms && norm.bias.empty() && all_have_codes(gemm);
}

bool has_partials(const MatmulArgs& gemm) {
  return !gemm.prologue.partials.empty() || !gemm.epilogue.partials.empty() ||
         !gemm.epilogue.partials_out.empty();
}

// Returns how many split-K partial sums the GEMM of `weight` leaves for its reader; 0: none.
std::int64_t partials_left(const GemmProblem& problem, PartitionCache& partitions,
                           const PackedMatrix& weight, std::int64_t tokens);

// The skinny launch of one matrix, without anything fused.
SkinnyPlan skinny_plan_of(const GemmProblem& problem, PartitionCache& partitions,
                          const PackedMatrix& weight, std::int64_t tokens) {
  const MatmulOutput output{&weight, {}, {}};
  MatmulArgs gemm;
  gemm.x.shape = {tokens, weight.in()};
  gemm.x.row_stride = weight.in();
  gemm.outputs = {&output, 1};
  const GemmProblem alone{gemm,          problem.facts,         problem.thresholds,
                          problem.wgmma, problem.deterministic, problem.scratch};
  const MatmulOutput* const outputs[] = {&output};
  const PackedGemm packed = make_packed_gemm(alone, partitions, outputs);
  return plan_skinny({.facts = problem.facts,
                      .thresholds = problem.thresholds,
                      .args = packed.args,
                      .weights = {packed.weights.data(), 1},
                      .tokens = tokens,
                      .deterministic = problem.deterministic},
                     partitions);
}

// Whether the int8 GEMV can multiply by the two k_splits of `weight`.
bool gemv_can_split_k(const GemmProblem& problem, PartitionCache& partitions,
                      const PackedMatrix& weight, std::int64_t tokens) {
  if (cuda_matrix(&weight).codes()->k_splits.empty()) return false;
  const MatmulOutput output{&weight, {}, {}};
  const MatmulOutput* const outputs[] = {&output};
  MatmulArgs gemm;
  gemm.x.shape = {tokens, weight.in()};
  gemm.x.row_stride = weight.in();
  gemm.outputs = {&output, 1};
  gemm.epilogue.accumulate = true;
  alignas(16) float unused = 0.0f;  // only that there is an address counts
  gemm.epilogue.partials_out = view_of(&unused, {1, tokens, weight.out()});
  const GemmProblem alone{gemm,          problem.facts,         problem.thresholds,
                          problem.wgmma, problem.deterministic, problem.scratch};
  const PackedGemm packed = make_packed_gemm(alone, partitions, outputs);
  const CtaRanges ranges = gemv_ranges(packed, partitions, problem.facts.multiprocessors);
  return plan_gemv_i8_launch(problem.facts, packed.args, ranges).has_value();
}

std::int64_t partials_left(const GemmProblem& problem, PartitionCache& partitions,
                           const PackedMatrix& weight, std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&weight).codes();
  if (codes == nullptr || !problem.facts.shared_pipelines()) return 0;
  if (packs_in_cta(problem, tokens, weight)) {
    return gemv_can_split_k(problem, partitions, weight, tokens) ? 1 : 0;
  }
  if (tokens == 1 || problem.deterministic || is_large(problem, weight, tokens)) return 0;
  const int k_splits = skinny_plan_of(problem, partitions, weight, tokens).regs.k_splits;
  return k_splits > 1 ? k_splits : 0;
}

// Returns the row width of staged fragments for the skinny GEMM of `reader`; 0: it cannot read
// them.
std::int64_t staged_fragments_width(const GemmProblem& problem, PartitionCache& partitions,
                                    const PackedMatrix& reader, std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&reader).codes();
  if (problem.deterministic || codes == nullptr || codes->fragment_offset_of_feature == nullptr) {
    return 0;
  }
  const std::int64_t k = std::int64_t{codes->view.k_steps} * kKStepSize;
  // Elements without a feature would have to be cleared.
  if (k != reader.in() || packs_in_cta(problem, tokens, reader)) return 0;
  if (max_skinny_tokens(problem.facts) != kStagedTileTokens) return 0;
  return skinny_plan_of(problem, partitions, reader, tokens).regs.exists() ? k : 0;
}

// Returns the row width of the binary16 rows that the large GEMM of `reader` reads; 0: it reads
// F32.
std::int64_t staged_rows_width(const GemmProblem& problem, const PackedMatrix& reader) {
  if (!reads_act_f16(&reader)) return 0;
  const ActF16 rows = act_f16_for(&reader);
  const bool fits = fits_act_f16_smem(problem.facts.compute_capability, reader.in(), rows.k);
  return rows.type == DType::kF16 && fits ? rows.k : 0;
}

class Router {
 public:
  Router(const GemmProblem& problem, PartitionCache& partitions)
      : problem_(problem), partitions_(partitions), tokens_(problem.gemm.tokens()) {
    plan_.core = problem.gemm;
  }

  GemmPlan choose() {
    if (core().epilogue.activation != nullptr) BL_CHECK(core().outputs.size() == 2);
    if (route_gemv()) return std::move(plan_);
    peel_for_one_token();
    if (has_partials(core()) && !skinny_can_read_partials()) peel_partials();
    plan_.rows_at_once = tokens_;
    if (problem_.deterministic && tokens_ > kMaxPackedTokens) {
      BL_CHECK(core().staged_x == nullptr);
      plan_.rows_at_once = kMaxPackedTokens;
    }
    const bool large = any_large();
    if (core().prologue.norm != nullptr &&
        !(large ? large_can_fuse_norm(core()) : packing_can_fuse_norm(core()))) {
      peel_norm();
    }
    if (core().epilogue.activation != nullptr && !large &&
        (problem_.deterministic || !have_codes_of_one_format(core()))) {
      plan_.activate = true;
      core().epilogue.activation = nullptr;
    }
    if (plan_.rows_at_once == tokens_) {
      plan_.launches = plan_launches(problem_of(core()), partitions_);
    }
    return std::move(plan_);
  }

 private:
  MatmulArgs& core() { return plan_.core; }
  GemmProblem problem_of(const MatmulArgs& gemm) const {
    return {gemm,           problem_.facts,         problem_.thresholds,
            problem_.wgmma, problem_.deterministic, problem_.scratch};
  }
  // A launch in front makes x, so its address is not known yet.
  void forget_x() {
    TensorView& x = core().x;
    x.data = nullptr;
    x.row_stride = x.columns();
  }

  // Plans the int8 GEMV with everything that the problem asks to fuse; false if that is impossible.
  bool route_gemv() {
    if (core().staged_x != nullptr || !packs_in_cta(problem_, tokens_, *core().outputs[0].weight) ||
        !have_codes_of_one_format(core()) || any_large() || !gemv_can_fuse()) {
      return false;
    }
    plan_.launches = plan_launches(problem_of(core()), partitions_);
    plan_.rows_at_once = tokens_;
    const bool is_gemv =
        plan_.launches.packed_count == 1 && plan_.launches.packed[0].kernel == GemmKernel::kGemvI8;
    if (!is_gemv) plan_.launches = {};
    return is_gemv;
  }
  bool gemv_can_fuse() {
    const Prologue& prologue = core().prologue;
    const Epilogue& epilogue = core().epilogue;
    const bool exl2 = is_exl2(core().outputs[0].weight);
    if (prologue.norm != nullptr && !packing_can_fuse_norm(core())) return false;
    if (prologue.partials.rows() > 1 || epilogue.partials.rows() > 1) return false;
    if (!prologue.sum.empty() && tokens_ == 1) return false;
    if (!prologue.deferred_mul.empty() &&
        (tokens_ > 1 || core().outputs.size() != 1 || !exl2 || prologue.norm != nullptr ||
         epilogue.activation != nullptr || !prologue.partials.empty())) {
      return false;
    }
    if (epilogue.activation != nullptr && epilogue.activation->deferred_gate_mul &&
        (tokens_ > 1 || !exl2 || !is_plain_silu(activation_parameters(*epilogue.activation)))) {
      return false;
    }
    return epilogue.partials_out.empty() ||
           partials_left(problem_, partitions_, *core().outputs[0].weight, tokens_) > 0;
  }

  // Only the int8 GEMV can multiply x by the deferred gate, or leave that to its reader.
  void peel_for_one_token() {
    if (!core().prologue.deferred_mul.empty()) {
      plan_.multiply_x = true;
      core().prologue.deferred_mul = {};
    }
    const ActivateArgs* activation = core().epilogue.activation;
    if (activation != nullptr && activation->deferred_gate_mul) {
      plan_.activate_gate = true;
      core().epilogue.activation = nullptr;
    }
  }

  // pack_activations() adds the partial sums of x before the norm; no skinny kernel adds those of
  // out.
  bool skinny_can_read_partials() {
    const Prologue& prologue = core().prologue;
    const Epilogue& epilogue = core().epilogue;
    if (tokens_ == 1 || !have_codes_of_one_format(core()) || problem_.deterministic ||
        packs_in_cta(problem_, tokens_, *core().outputs[0].weight) ||
        is_large(problem_, *core().outputs[0].weight, tokens_)) {
      return false;
    }
    if (prologue.norm != nullptr && !packing_can_fuse_norm(core())) return false;
    if (!prologue.partials.empty() && prologue.norm == nullptr) return false;
    if (!epilogue.partials.empty()) return false;
    if (epilogue.partials_out.empty()) return true;
    return epilogue.accumulate && core().outputs[0].bias.empty() &&
           epilogue.partials_out.rows() ==
               partials_left(problem_, partitions_, *core().outputs[0].weight, tokens_);
  }
  void peel_partials() {
    Prologue& prologue = core().prologue;
    Epilogue& epilogue = core().epilogue;
    if (!prologue.partials.empty()) {
      plan_.reduce_x = true;
      prologue.partials = prologue.sum = {};
      forget_x();
    }
    if (!epilogue.partials.empty()) {
      BL_CHECK(epilogue.accumulate && core().outputs.size() == 1);
      plan_.reduce_out = true;
      epilogue.partials = {};
    }
    plan_.clear_partials_out = !epilogue.partials_out.empty();
    epilogue.partials_out = {};
  }

  void peel_norm() {
    plan_.normalise = true;
    core().prologue.norm = nullptr;
    forget_x();
  }

  bool any_large() {
    return std::any_of(
        core().outputs.begin(), core().outputs.end(),
        [&](const MatmulOutput& output) { return is_large(problem_, *output.weight, tokens_); });
  }

  const GemmProblem& problem_;
  PartitionCache& partitions_;
  std::int64_t tokens_;
  GemmPlan plan_;
};

// Plain matrices of kLargeBytes and more, mostly output layers, go to cuBLASLt where
// dense_gemv_rows() would read them more than once. cuBLASLt rounds activations to binary16, which
// is precise enough beside weights of that type, as it is beside packed codes.
GemmKernel dense_kernel(const GemmProblem& problem, const MatmulOutput& output) {
  constexpr std::int64_t kLargeBytes = 32 << 20;
  const std::int64_t in = output.weight->in();
  const bool library = in * output.weight->out() * 2 >= kLargeBytes && in % 8 == 0 &&
                       cuda_matrix(output.weight).dense()->type == DType::kF16 &&
                       problem.gemm.x.rows() >= problem.thresholds.dense_library_from;
  return library && !problem.deterministic ? GemmKernel::kDenseLibrary : GemmKernel::kDenseGemv;
}

PackedLaunch plan_packed(const GemmProblem& problem, PartitionCache& partitions,
                         std::span<const MatmulOutput* const> outputs) {
  const std::int64_t tokens = problem.gemm.tokens();
  PackedLaunch launch;
  launch.gemm = make_packed_gemm(problem, partitions, outputs);
  const bool staged = problem.gemm.staged_x != nullptr;
  if (!staged && packs_in_cta(problem, tokens, *outputs[0]->weight)) {
    const CtaRanges ranges = gemv_ranges(launch.gemm, partitions, problem.facts.multiprocessors);
    if (const auto gemv = plan_gemv_i8_launch(problem.facts, launch.gemm.args, ranges)) {
      launch.kernel = GemmKernel::kGemvI8;
      launch.gemv = *gemv;
      return launch;
    }
  }
  const auto count = static_cast<std::size_t>(launch.gemm.args.count);
  launch.skinny = plan_skinny({.facts = problem.facts,
                               .thresholds = problem.thresholds,
                               .args = launch.gemm.args,
                               .weights = {launch.gemm.weights.data(), count},
                               .tokens = tokens,
                               .packs_first = !staged,
                               .deterministic = problem.deterministic},
                              partitions);
  launch.kernel = launch.skinny.regs.exists() ? GemmKernel::kSkinnyRegs : GemmKernel::kSkinnySmem;
  BL_CHECK(!staged || launch.kernel == GemmKernel::kSkinnyRegs);
  return launch;
}

}  // namespace

GemmLaunches plan_launches(const GemmProblem& problem, PartitionCache& partitions) {
  GemmLaunches launches;
  const MatmulArgs& gemm = problem.gemm;
  const auto runs_large = [&](const MatmulOutput& output) {
    return is_large(problem, *output.weight, gemm.tokens());
  };
  if (std::any_of(gemm.outputs.begin(), gemm.outputs.end(), runs_large)) {
    launches.large = plan_large(problem);
    return launches;
  }
  for (const MatmulOutput& output : gemm.outputs) {
    if (has_codes(output.weight)) continue;
    BL_CHECK(launches.dense_count < kMaxMatrices);
    launches.dense[static_cast<std::size_t>(launches.dense_count++)] = {
        dense_kernel(problem, output), &output};
  }
  for (const bool exl2 : {true, false}) {
    std::array<const MatmulOutput*, kMaxMatrices> outputs{};
    std::size_t count = 0;
    for (const MatmulOutput& output : gemm.outputs) {
      if (!has_codes(output.weight) || is_exl2(output.weight) != exl2) continue;
      BL_CHECK(count < outputs.size());
      outputs[count++] = &output;
    }
    if (count == 0) continue;
    launches.packed[static_cast<std::size_t>(launches.packed_count++)] =
        plan_packed(problem, partitions, {outputs.data(), count});
  }
  return launches;
}

GemmPlan choose_route(const GemmProblem& problem, PartitionCache& partitions) {
  return Router(problem, partitions).choose();
}

bool is_staged_fragments(const GemmProblem& problem, const StagedInput& staged) {
  return !is_large(problem, *staged.reader, staged.rows.rows());
}

GemmFusion fusion_offered(const GemmProblem& problem, PartitionCache& partitions,
                          const GemmFusionQuery& query) {
  GemmFusion fusion{.norm = true, .activation = true};
  if (query.adds != nullptr) {
    fusion.partials = partials_left(problem, partitions, *query.adds, query.tokens);
  }
  if (query.reader != nullptr) {
    fusion.staged_width =
        is_large(problem, *query.reader, query.tokens)
            ? staged_rows_width(problem, *query.reader)
            : staged_fragments_width(problem, partitions, *query.reader, query.tokens);
  }
  // Where gate and up have different input layouts, a CTA with n_tiles of both would have to make
  // both layouts; apart, it makes one (bench/ladder/gemv_i8.md).
  const GatedMatrices& gated = query.gated;
  if (gated.down != nullptr && query.activation != nullptr && query.tokens == 1 &&
      packs_in_cta(problem, 1, *gated.down) && problem.facts.shared_pipelines() &&
      is_plain_silu(activation_parameters(*query.activation)) && is_exl2(gated.gate) &&
      is_exl2(gated.up) && is_exl2(gated.down)) {
    fusion.deferred_gate_mul = cuda_matrix(gated.gate).codes()->input_layout !=
                               cuda_matrix(gated.up).codes()->input_layout;
  }
  return fusion;
}

}  // namespace bl::cuda
