// Of a prompt's step few rows are wanted: in the last block these alone are queries, where keys can
// be computed apart from them.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "backend/registry.h"
#include "model/golden.h"
#include "model/kept_run.h"
#include "model/kept_step.h"

namespace bl::test {
namespace {

// `length` ids of a text with a number of its own.
std::vector<std::int32_t> ids_of(std::int64_t length, std::int32_t number, std::int64_t vocab) {
  std::vector<std::int32_t> ids = some_ids(length, vocab);
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>((std::int64_t{id} + 13 * number) % vocab);
  }
  return ids;
}

// The last row of a prompt, of more than a page where the model reads so much; no row; some that
// follow each other, in the middle; some that do not.
std::vector<KeptText> some_texts(const Model& model) {
  const std::int64_t vocab = model.vocab();
  const auto length =
      static_cast<std::int32_t>(std::min<std::int64_t>(model.spec().max_positions, 300));
  return {{ids_of(length, 0, vocab), 40, {length - 1}},
          {ids_of(30, 1, vocab), 7, {}},
          {ids_of(110, 2, vocab), 20, {60, 61, 62}},
          {ids_of(25, 3, vocab), 0, {5, 24}}};
}
constexpr std::int64_t kSomeWanted = 6;

// Read in the second step.
std::int64_t new_tokens(const std::vector<KeptText>& texts) {
  std::int64_t tokens = 0;
  for (const KeptText& text : texts) tokens += std::ssize(text.ids) - text.past;
  return tokens;
}

bool keys_are_apart(Model& model) {
  const ModelSpec& spec = model.spec();
  const std::int32_t last = spec.order.back();
  const std::optional<AttentionSpec>& attention =
      spec.blocks[static_cast<std::size_t>(last)].attention;
  if (!attention || attention->value_is_key || attention->clip > 0.0f) return false;
  bool apart = true;
  model.visit([&](const std::string& name, Linear&) {
    if (name == "blocks." + std::to_string(last) + ".qkv_proj") apart = false;
  });
  return apart;
}

class KeptQueries : public testing::TestWithParam<std::string> {};

TEST_P(KeptQueries, GiveWhatAllRowsGive) {
  for (const char* backend : {"ref", "cpu"}) {
    SCOPED_TRACE(backend);
    GoldenRun run(backend, model_folder(GetParam()), CacheType::kF16);
    Model& model = run.model();
    const std::vector<KeptText> texts = some_texts(model);
    const std::int64_t rows = expect_kept_equals_all(run.backend(), model, CacheType::kF16, texts);
    if (backend != std::string("ref")) continue;
    const std::int32_t last = model.spec().order.back();
    if (!model.spec().blocks[static_cast<std::size_t>(last)].attention) continue;
    EXPECT_EQ(rows, keys_are_apart(model) ? kSomeWanted : new_tokens(texts));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KeptQueries,
    testing::ValuesIn(sampled_golden_models({"archs-tiny", "hf-tiny", "exl2-gptq"})),
    [](const testing::TestParamInfo<std::string>& info) { return case_name(info.param); });

// Steps of few tokens may be recorded, and stay what they are; so do those whose wanted rows would
// be more spans than there are sequences.
TEST(KeptQueriesOf, PromptsAlone) {
  GoldenRun run("ref", golden_folder("hf-tiny") / "llama", CacheType::kF32);
  const std::int64_t vocab = run.model().vocab();
  const auto rows_of = [&](const KeptText& text) {
    return expect_kept_equals_all(run.backend(), run.model(), CacheType::kF32, {text});
  };
  EXPECT_EQ(rows_of({ids_of(63, 0, vocab), 0, {62}}), 63);
  EXPECT_EQ(rows_of({ids_of(64, 0, vocab), 0, {63}}), 1);
  EXPECT_EQ(rows_of({ids_of(90, 0, vocab), 27, {89}}), 63);
  EXPECT_EQ(rows_of({ids_of(90, 0, vocab), 26, {26, 27}}), 2);
  EXPECT_EQ(rows_of({ids_of(90, 0, vocab), 26, {26, 28}}), 64);
}

// A backend that plans, as if it had a device: plans take scratch, there is one at a time, and
// every attention wants that of its own spans.
class PlanningBackend final : public RefBackend {
 public:
  // There is room for one, which is more than all else of a tiny model's step.
  static constexpr std::int64_t kPlanBytes = std::int64_t{1} << 24;

  PlanningBackend() : RefBackend(1), ops_(RefBackend::ops()) {
    ops_.attention = planned_attention;
    ops_.rope_write_attend = nullptr;
  }
  const OpTable& ops() const override { return ops_; }
  std::size_t scratch_bytes(const ScratchShape& shape) const override {
    return RefBackend::scratch_bytes(shape) + arena_bytes(DType::kI32, kPlanBytes / 4);
  }
  const AttentionPlan* plan_attention(ExecContext& ctx,
                                      std::span<const SequenceSpan> sequences) override {
    plan_.memory = ctx.scratch->take(DType::kI32, {kPlanBytes / 4});
    plan_.number = ++plans;
    plan_.memory.as<std::int32_t>()[0] = plan_.number;
    plan_.sequences = sequences;
    return &plan_;
  }

  std::int32_t plans = 0;

 private:
  struct Plan final : AttentionPlan {
    TensorView memory;
    std::int32_t number = 0;
    std::span<const SequenceSpan> sequences;
  };
  static void planned_attention(ExecContext& ctx, const AttentionArgs& args) {
    ASSERT_NE(args.plan, nullptr);
    const auto& plan = static_cast<const Plan&>(*args.plan);
    EXPECT_EQ(plan.memory.as<const std::int32_t>()[0], plan.number) << "its memory is another's";
    EXPECT_EQ(plan.sequences.data(), args.sequences.data());
    EXPECT_EQ(plan.sequences.size(), args.sequences.size());
    static const RefBackend plain(1);
    plain.ops().attention(ctx, args);
  }

  OpTable ops_;
  Plan plan_;
};

// The frequencies of one row of a step.
std::vector<float> frequencies_of(const StepInputs::RopeRows& rows, std::int64_t row) {
  const float* first = rows.inv_freq.row<float>(rows.variant[row]);
  std::vector<float> all(first, first + rows.inv_freq.shape[1]);
  all.push_back(rows.scale.as<float>()[rows.variant[row]]);
  return all;
}

// What it takes is planned: all of it where each row is a run of its own. Rows are rotated as in
// the whole step.
TEST(KeptQueriesOf, TakeWhatIsPlanned) {
  RefBackend backend(1);
  for (const char* name : {"llama", "llama-rope-dynamic", "phi3-longrope", "gpt2"}) {
    SCOPED_TRACE(name);
    const auto model = load_model(backend, open_model_folder(golden_folder("hf-tiny") / name), {});
    const std::vector<RopeSpec>& specs = model->spec().ropes;
    const RopeBank ropes(backend, specs);
    StepBatch batch;
    std::vector<RopeBank::Sequence> rotations;
    constexpr std::int32_t kTokens = 64;
    for (std::int32_t s = 0; s < 3; ++s) {
      batch.sequences.push_back({.first_token = s * kTokens,
                                 .tokens = kTokens,
                                 .past = s,
                                 .pages = {},
                                 .reach = 1000 * s + kTokens});
      rotations.push_back({kTokens, s, batch.sequences.back().reach});
      batch.logit_rows.push_back((s + 1) * kTokens - 1 - s);
      for (std::int32_t i = 0; i < kTokens; ++i) batch.positions.push_back(s + i);
    }
    ASSERT_TRUE(KeptStep::pays(batch));
    const std::size_t planned = KeptStep::work_bytes(specs, 3);
    Arena scratch(backend.allocate(planned));
    ExecContext ctx = backend.context(scratch);
    const KeptStep kept(ctx, backend, ropes, batch, {});
    EXPECT_EQ(scratch.peak(), planned);
    EXPECT_EQ(kept.inputs().tokens, 3);
    Arena other(backend.allocate(std::size_t{1} << 20));
    ctx.scratch = &other;
    const std::vector<StepInputs::RopeRows> whole = ropes.prepare(ctx, rotations);
    for (std::size_t table = 0; table < whole.size(); ++table) {
      for (std::int64_t i = 0; i < 3; ++i) {
        const std::int32_t row = batch.logit_rows[static_cast<std::size_t>(i)];
        EXPECT_EQ(frequencies_of(kept.inputs().ropes[table], i), frequencies_of(whole[table], row));
      }
    }
    for (std::int32_t s = 0; s < 3; ++s) {
      const SequenceSpan& span = kept.inputs().sequences[static_cast<std::size_t>(s)];
      EXPECT_EQ(span.first_token, s);
      EXPECT_EQ(span.tokens, 1);
      EXPECT_EQ(span.past, kTokens - 1);
      EXPECT_EQ(kept.inputs().positions[s], kTokens - 1);
    }
  }
}

// Some tables of frequencies take scratch a sequence. Where nearly all rows are wanted, memory is
// shortest.
TEST(KeptQueriesOf, FitIntoThePlan) {
  for (const char* name : {"llama", "llama-rope-dynamic", "phi3-longrope", "mixtral", "gpt-oss"}) {
    SCOPED_TRACE(name);
    PlanningBackend backend;
    const auto model = load_model(backend, open_model_folder(golden_folder("hf-tiny") / name), {});
    const std::int64_t vocab = model->vocab();
    const std::int32_t before = backend.plans;
    expect_kept_equals_all(backend, *model, CacheType::kF32, some_texts(*model));
    // Two steps twice, and the queries of one.
    EXPECT_EQ(backend.plans - before, keys_are_apart(*model) ? 5 : 4);
    KeptText text{ids_of(100, 0, vocab), 0, {}};
    for (std::int32_t i = 1; i < 100; ++i) text.wanted.push_back(i);
    expect_kept_equals_all(backend, *model, CacheType::kF32, {text});
  }
}

}  // namespace
}  // namespace bl::test
