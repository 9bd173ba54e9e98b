// choose_route() over tokens × formats × compute capabilities × fusions, without a card: which
// kernel runs, what is fused, and what is left to launches in front and behind.

#include "backend/cuda/gemm/route.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/embedded_document.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

constexpr std::int64_t kWidth = 4096;

DeviceFacts card(int compute_capability) {
  DeviceFacts facts;
  facts.compute_capability = compute_capability;
  facts.multiprocessors = compute_capability == 90 ? 132 : 108;
  facts.shared_bytes_per_cta = compute_capability == 90   ? 232448
                               : compute_capability == 75 ? 65536
                                                          : 101376;
  return facts;
}

// The plans that ship for compute capability 9.0, 8.x and 7.5.
LaunchPlan thresholds_of(int compute_capability) {
  LaunchPlan plan;
  if (compute_capability >= 80) plan.large_from = 33;
  if (compute_capability < 90) return plan;
  plan.skinny_from = 5;
  plan.skinny_smem_from = 25;
  plan.small_skinny_smem_from = 9;
  plan.large_from = 49;
  plan.wgmma_from = 17;
  return plan;
}

enum class Format { kExl2, kGptq, kF16, kF32 };

class Route : public testing::Test {
 protected:
  // A packed matrix in memory that nobody reads.
  const PackedMatrix* matrix(Format format, std::int64_t in = kWidth, std::int64_t out = kWidth) {
    CudaMatrix::Weights weights;
    if (format == Format::kExl2 || format == Format::kGptq) {
      CodePackPlan plan =
          format == Format::kExl2
              ? plan_codes(random_exl2({{4, static_cast<std::int32_t>(in)}}, out, engine_), out)
              : plan_codes(random_gptq({4, in, out, 128, false, GptqZeros::kWords}, engine_), out);
      memory_.push_back(std::make_unique<std::byte[]>(1 << 16));
      // Only addresses count: views point into the card's memory.
      weights = describe_codes(std::move(plan), aligned(memory_.back().get()));
    } else {
      DenseWeights dense;
      dense.type = format == Format::kF16 ? DType::kF16 : DType::kF32;
      weights = dense;
    }
    matrices_.push_back(std::make_unique<CudaMatrix>(in, out, std::move(weights)));
    return matrices_.back().get();
  }

  TensorView rows(std::int64_t tokens, std::int64_t columns) {
    memory_.push_back(std::make_unique<std::byte[]>(256));
    return view_of(reinterpret_cast<float*>(aligned(memory_.back().get())), {tokens, columns});
  }

  // Returns the GEMM of these matrices with so many tokens.
  MatmulArgs gemm(std::vector<const PackedMatrix*> weights, std::int64_t tokens) {
    outputs_.emplace_back();
    for (const PackedMatrix* weight : weights) {
      outputs_.back().push_back({weight, rows(tokens, weight->out()), {}});
    }
    MatmulArgs args;
    args.x = rows(tokens, weights[0]->in());
    args.outputs = outputs_.back();
    return args;
  }

  GemmProblem problem(const MatmulArgs& args) {
    return {.gemm = args,
            .facts = facts_,
            .thresholds = thresholds_,
            .wgmma = facts_.compute_capability == 90,
            .deterministic = deterministic_,
            .scratch = std::size_t{1} << 30};
  }
  GemmPlan route(const MatmulArgs& args) { return choose_route(problem(args), partitions_); }
  void use(int compute_capability) {
    facts_ = card(compute_capability);
    thresholds_ = thresholds_of(compute_capability);
  }

  // Returns "gemv_i8", "regs", "smem", "large", … for the first launch.
  static std::string kernel_of(const GemmPlan& plan) {
    if (plan.launches.large) {
      const LargePlan& large = *plan.launches.large;
      if (large.one_launch) return "wgmma";
      const LargeGroup& group = large.groups.front();
      if (!group.reads_f16) return "wide";
      const LargeKernel kernel = group.launches.front().kernel;
      if (kernel == LargeKernel::kWgmma) return "wgmma";
      return kernel == LargeKernel::kLibrary ? "library" : "dequant";
    }
    if (plan.launches.packed_count == 0) {
      if (plan.launches.dense_count == 0) return "none";
      return plan.launches.dense[0].kernel == GemmKernel::kDenseLibrary ? "dense library"
                                                                        : "dense gemv";
    }
    switch (plan.launches.packed[0].kernel) {
      case GemmKernel::kGemvI8:
        return "gemv_i8";
      case GemmKernel::kSkinnyRegs:
        return "regs";
      default:
        return "smem";
    }
  }

  Engine engine_{7};
  DeviceFacts facts_ = card(90);
  LaunchPlan thresholds_ = thresholds_of(90);
  PartitionCache partitions_;
  bool deterministic_ = false;

 private:
  static std::byte* aligned(std::byte* at) {
    return at + (256 - reinterpret_cast<std::uintptr_t>(at) % 256) % 256;
  }
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::unique_ptr<CudaMatrix>> matrices_;
  std::vector<std::vector<MatmulOutput>> outputs_;
};

TEST_F(Route, KernelsByTokensFormatsAndCards) {
  struct Case {
    Format format;
    int card;
    std::int64_t tokens;
    std::string kernel;
  };
  const Case cases[] = {
      {Format::kExl2, 90, 1, "gemv_i8"},      {Format::kExl2, 90, 2, "gemv_i8"},
      {Format::kExl2, 90, 3, "gemv_i8"},      {Format::kExl2, 90, 4, "regs"},
      {Format::kExl2, 90, 5, "regs"},         {Format::kExl2, 90, 16, "regs"},
      {Format::kExl2, 90, 17, "wgmma"},       {Format::kExl2, 90, 2048, "wgmma"},
      {Format::kGptq, 90, 1, "gemv_i8"},      {Format::kGptq, 90, 16, "regs"},
      {Format::kGptq, 90, 64, "wgmma"},       {Format::kExl2, 89, 1, "gemv_i8"},
      {Format::kExl2, 89, 2, "smem"},         {Format::kExl2, 89, 32, "smem"},
      {Format::kExl2, 89, 33, "dequant"},     {Format::kGptq, 75, 1, "gemv_i8"},
      {Format::kGptq, 75, 2, "smem"},         {Format::kGptq, 75, 512, "dequant"},
      {Format::kF16, 90, 1, "dense gemv"},    {Format::kF16, 90, 8, "dense gemv"},
      {Format::kF16, 90, 9, "dense library"}, {Format::kF16, 90, 49, "library"},
      {Format::kF16, 89, 65, "library"},      {Format::kF32, 90, 4, "dense gemv"},
      {Format::kF32, 90, 100, "wide"},
  };
  for (const Case& c : cases) {
    use(c.card);
    const GemmPlan plan = route(gemm({matrix(c.format)}, c.tokens));
    EXPECT_EQ(kernel_of(plan), c.kernel)
        << "format " << static_cast<int>(c.format) << ", cc " << c.card << ", " << c.tokens;
  }
}

// Four tokens: gemm_skinny_regs() where its warps hold whole k_splits, and where rows are long.
TEST_F(Route, FourTokensGoWhereTheirRowsFit) {
  const auto kernel = [&](std::int64_t in, std::int64_t tokens) {
    return kernel_of(route(gemm({matrix(Format::kExl2, in)}, tokens)));
  };
  EXPECT_EQ(kernel(3072, 4), "gemv_i8");
  EXPECT_EQ(kernel(5120, 4), "gemv_i8");
  EXPECT_EQ(kernel(4096, 4), "regs");
  EXPECT_EQ(kernel(14336, 4), "regs");
  EXPECT_EQ(kernel(5120, 5), "regs");
  // The limbs of three tokens and the pipeline do not fit into shared memory.
  EXPECT_EQ(kernel(28672, 3), "regs");
}

// Several tokens of the int8 GEMV: one launch reads partial sums and leaves some.
TEST_F(Route, PartialSumsOfSeveralTokensAreFused) {
  constexpr std::int64_t kTokens = 2;
  const PackedMatrix* longer = matrix(Format::kExl2, 14336, kWidth);
  ASSERT_EQ(fusion_offered(problem({}), partitions_, {.tokens = kTokens, .adds = longer}).partials,
            1);
  MatmulArgs args = gemm({longer}, kTokens);
  args.epilogue.accumulate = true;
  args.epilogue.partials_out = view_of(args.x.as<float>(), {1, kTokens, kWidth});
  EXPECT_EQ(kernel_of(route(args)), "gemv_i8");
  EXPECT_FALSE(route(args).clear_partials_out);

  NormArgs rms;
  rms.weight = rows(1, kWidth);
  MatmulArgs reader = gemm({matrix(Format::kExl2)}, kTokens);
  reader.prologue.norm = &rms;
  reader.prologue.partials = view_of(reader.x.as<float>(), {1, kTokens, kWidth});
  reader.prologue.sum = rows(kTokens, kWidth);
  const GemmPlan plan = route(reader);
  EXPECT_FALSE(plan.reduce_x);
  ASSERT_EQ(kernel_of(plan), "gemv_i8");
  EXPECT_NE(plan.launches.packed[0].gemm.args.x_sum, nullptr);
  // A matrix whose GEMV does not fit leaves none.
  EXPECT_EQ(fusion_offered(problem({}), partitions_,
                           {.tokens = 3, .adds = matrix(Format::kExl2, 65536, kWidth)})
                .partials,
            0);
}

// On 8.6 a CTA has 99 KB: the limbs of one token fit, K is split, and groups of n_tiles are
// smaller.
TEST_F(Route, OneTokenOf86HasAPipeline) {
  use(86);
  const PackedMatrix* longer = matrix(Format::kExl2, 14336, kWidth);
  EXPECT_EQ(fusion_offered(problem({}), partitions_, {.tokens = 1, .adds = longer}).partials, 1);
  for (const std::int64_t in : {kWidth, std::int64_t{7168}}) {
    const GemmPlan plan = route(gemm({matrix(Format::kExl2, in)}, 1));
    ASSERT_EQ(kernel_of(plan), "gemv_i8");
    const GemvSmemLayout& layout = plan.launches.packed[0].gemv.layout;
    EXPECT_GE(layout.pipeline.stages, 3) << in;
    EXPECT_LT(layout.pipeline.n_tiles_at_once, kGemvNTiles) << in;
    EXPECT_LE(layout.bytes, static_cast<int>(facts_.shared_bytes_per_cta)) << in;
  }
}

TEST_F(Route, SmallPlainMatricesStayWithTheGemv) {
  EXPECT_EQ(kernel_of(route(gemm({matrix(Format::kF16, 1024, 1024)}, 16))), "dense gemv");
}

TEST_F(Route, WithoutWgmmaInTheBuildCodesAreDequantized) {
  const MatmulArgs args = gemm({matrix(Format::kExl2)}, 512);
  const GemmProblem without{args, facts_, thresholds_, false, false, std::size_t{1} << 30};
  EXPECT_EQ(kernel_of(choose_route(without, partitions_)), "dequant");
}

// The tiles of a cluster share their rows, so a matrix with rows of its own begins a new cluster.
TEST_F(Route, MatricesOfTwoPermutationsShareALaunchButNoCluster) {
  constexpr std::int64_t kThreeTiles = 3 * 128;
  NormArgs rms;
  MatmulArgs args =
      gemm({matrix(Format::kExl2, kWidth, kThreeTiles), matrix(Format::kExl2, kWidth, kThreeTiles)},
           512);
  args.prologue.norm = &rms;
  const GemmPlan plan = route(args);
  ASSERT_TRUE(plan.launches.large && plan.launches.large->one_launch);
  EXPECT_TRUE(plan.launches.large->norm_together);
  const WgmmaLaunch& launch = plan.launches.large->wgmma.launch;
  EXPECT_EQ(launch.first_tiles[1], 4);
  EXPECT_EQ(launch.first_tiles[2], 8);
}

TEST_F(Route, EveryFormatOfOneCallHasItsLaunch) {
  const GemmPlan plan =
      route(gemm({matrix(Format::kExl2), matrix(Format::kGptq), matrix(Format::kF16)}, 1));
  EXPECT_EQ(plan.launches.packed_count, 2);
  EXPECT_EQ(plan.launches.dense_count, 1);
  EXPECT_FALSE(plan.launches.large.has_value());
}

TEST_F(Route, RmsNormsAreFusedAndOthersAreNot) {
  NormArgs rms;
  rms.weight = rows(1, kWidth);
  NormArgs layer = rms;
  layer.kind = NormKind::kLayer;
  for (const std::int64_t tokens : {1, 2, 8, 512}) {
    MatmulArgs args = gemm({matrix(Format::kExl2)}, tokens);
    args.prologue.norm = &rms;
    EXPECT_FALSE(route(args).normalise) << tokens;
    args.prologue.norm = &layer;
    // Making binary16 rows can fuse any norm.
    EXPECT_EQ(route(args).normalise, tokens < 17) << tokens;
  }
  MatmulArgs mixed = gemm({matrix(Format::kExl2), matrix(Format::kF16)}, 4);
  mixed.prologue.norm = &rms;
  const GemmPlan plan = route(mixed);
  EXPECT_TRUE(plan.normalise) << "a plain matrix reads F32 rows";
  EXPECT_EQ(plan.core.prologue.norm, nullptr);
}

TEST_F(Route, ActivationsAreFusedWhereGateAndUpHaveOneFormat) {
  for (const std::int64_t tokens : {1, 8, 512}) {
    for (const bool same : {true, false}) {
      MatmulArgs args =
          gemm({matrix(Format::kExl2), matrix(same ? Format::kExl2 : Format::kGptq)}, tokens);
      const ActivateArgs silu{
          .gate = args.outputs[0].out, .up = args.outputs[1].out, .out = args.outputs[0].out};
      args.epilogue.activation = &silu;
      const GemmPlan plan = route(args);
      // A large GEMM fuses the activation or launches it itself.
      EXPECT_EQ(plan.activate, !same && tokens < 17) << tokens << ", " << same;
      EXPECT_FALSE(plan.activate_gate);
    }
  }
}

TEST_F(Route, DeferredGateMultiplicationIsForOneToken) {
  for (const std::int64_t tokens : {1, 8}) {
    MatmulArgs args = gemm({matrix(Format::kExl2), matrix(Format::kExl2)}, tokens);
    ActivateArgs silu{
        .gate = args.outputs[0].out, .up = args.outputs[1].out, .out = args.outputs[0].out};
    silu.deferred_gate_mul = true;
    args.epilogue.activation = &silu;
    EXPECT_EQ(route(args).activate_gate, tokens > 1);

    MatmulArgs down = gemm({matrix(Format::kExl2)}, tokens);
    down.prologue.deferred_mul = rows(tokens, kWidth);
    const GemmPlan plan = route(down);
    EXPECT_EQ(plan.multiply_x, tokens > 1);
    EXPECT_EQ(plan.core.prologue.deferred_mul.empty(), tokens > 1);
  }
}

TEST_F(Route, PartialSumsThatCannotStayAreReduced) {
  const PackedMatrix* weight = matrix(Format::kExl2);
  MatmulArgs args = gemm({weight}, 512);
  args.prologue.partials = view_of(args.x.as<float>(), {2, 512, kWidth});
  args.epilogue.accumulate = true;
  args.epilogue.partials = args.epilogue.partials_out = args.prologue.partials;
  const GemmPlan plan = route(args);
  EXPECT_TRUE(plan.reduce_x);
  EXPECT_TRUE(plan.reduce_out);
  EXPECT_TRUE(plan.clear_partials_out);
  EXPECT_TRUE(plan.core.epilogue.partials.empty());
  EXPECT_EQ(kernel_of(plan), "wgmma");
}

TEST_F(Route, PartialSumsOfOneTokenAreFusedWhereKIsSplit) {
  const PackedMatrix* longer = matrix(Format::kExl2, 14336, kWidth);
  const GemmFusion fusion = fusion_offered(problem({}), partitions_, {.tokens = 1, .adds = longer});
  ASSERT_EQ(fusion.partials, 1);
  MatmulArgs args = gemm({longer}, 1);
  args.epilogue.accumulate = true;
  args.epilogue.partials_out = view_of(args.x.as<float>(), {1, 1, kWidth});
  const GemmPlan plan = route(args);
  EXPECT_FALSE(plan.clear_partials_out);
  ASSERT_EQ(kernel_of(plan), "gemv_i8");
  EXPECT_TRUE(plan.launches.packed[0].gemm.split_k);
  EXPECT_EQ(plan.launches.packed[0].gemm.args.count, 2);
}

TEST_F(Route, DeterminismTakesOneKernelForAnyNumberOfRowsAndFusesNoActivation) {
  deterministic_ = true;
  const PackedMatrix* weight = matrix(Format::kExl2);
  for (const std::int64_t tokens : {1, 2, 17, 64}) {
    EXPECT_EQ(kernel_of(route(gemm({weight}, tokens))), "smem") << tokens;
  }
  const GemmPlan many = route(gemm({weight}, 150));
  EXPECT_EQ(many.rows_at_once, kMaxPackedTokens);
  EXPECT_EQ(kernel_of(many), "none") << "slices are planned one by one";
  MatmulArgs gated = gemm({weight, matrix(Format::kExl2)}, 4);
  const ActivateArgs silu{
      .gate = gated.outputs[0].out, .up = gated.outputs[1].out, .out = gated.outputs[0].out};
  gated.epilogue.activation = &silu;
  EXPECT_TRUE(route(gated).activate);
}

TEST_F(Route, FusionIsOfferedByTokens) {
  const PackedMatrix* weight = matrix(Format::kExl2);
  const auto width = [&](std::int64_t tokens) {
    return fusion_offered(problem({}), partitions_, {.tokens = tokens, .reader = weight})
        .staged_width;
  };
  EXPECT_EQ(width(1), 0) << "every CTA packs the activations for itself";
  EXPECT_EQ(width(8), kWidth) << "fragments";
  EXPECT_EQ(width(512), kWidth) << "binary16 rows";
  deterministic_ = true;
  EXPECT_EQ(width(8), 0);
}

TEST_F(Route, StagedInputGoesToTheKernelThatReadsIt) {
  const PackedMatrix* weight = matrix(Format::kExl2);
  for (const std::int64_t tokens : {8, 512}) {
    MatmulArgs args = gemm({weight}, tokens);
    const StagedInput staged{weight, view_of(args.x.data, DType::kF16, {tokens, kWidth}),
                             args.x.as<float>()};
    args.staged_x = &staged;
    EXPECT_EQ(is_staged_fragments(problem(args), staged), tokens == 8);
    EXPECT_EQ(kernel_of(route(args)), tokens == 8 ? "regs" : "wgmma");
  }
}

}  // namespace
}  // namespace bl::test
