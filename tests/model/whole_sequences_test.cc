// A forward pass over whole sequences, with the keys and values of one block at a time, equals the
// pass with a cache of all blocks to the last bit.
#include "model/whole_sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "model/adapter_files.h"
#include "model/golden.h"
#include "model/model_loader.h"
#include "support/data.h"

namespace bl::test {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Mixes = std::vector<AdapterMix>;  // one per text, or empty

// A text one token longer than a page, a single token, a text of three pages, one of exactly a
// page, and a short one; each cut to the longest text that the model takes.
Texts uneven_texts(const Model& model) {
  Texts texts;
  for (const std::int64_t length : {257, 1, 600, 256, 20}) {
    const std::int64_t most = std::min(length, model.spec().max_positions);
    std::vector<std::int32_t> ids = some_ids(most, model.vocab());
    std::rotate(ids.begin(), ids.begin() + std::ssize(texts) % most, ids.end());
    texts.push_back(std::move(ids));
  }
  return texts;
}

std::int64_t length_of(const Texts& texts) {
  std::int64_t tokens = 0;
  for (const auto& ids : texts) tokens += std::ssize(ids);
  return tokens;
}

// Every third row, the last one included.
std::vector<std::int32_t> some_rows(std::int64_t tokens) {
  std::vector<std::int32_t> rows;
  for (std::int64_t i = (tokens - 1) % 3; i < tokens; i += 3) {
    rows.push_back(static_cast<std::int32_t>(i));
  }
  return rows;
}

// The results of a pass, on the host: the hidden states that enter each block and those that leave
// the last one, each [tokens, hidden], and logits [rows, vocab].
struct PassResult {
  std::vector<std::vector<float>> states;
  std::vector<float> logits;
};

std::vector<float> on_host(Backend& backend, const TensorView& from) {
  const Tensor host = make_host_tensor(DType::kF32, from.shape);
  backend.download(host.view(), from);
  const float* first = host.view().as<float>();
  return {first, first + host.view().shape.elements()};
}

Tensor states_on_device(Backend& backend, const Model& model, std::int64_t tokens) {
  const Shape shape{tokens, model.spec().hidden};
  const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  return {backend.allocate(bytes), DType::kF32, shape};
}

// Runs the texts the way the engine does, with a cache that holds the keys and values of all
// blocks.
PassResult paged_pass(GoldenRun& run, CacheType type, const Texts& texts, const Mixes& mixes) {
  const Model& model = run.model();
  Backend& backend = run.backend();
  std::int32_t pages = 0;
  for (const auto& ids : texts) pages += KvCache::pages_for(std::ssize(ids));
  KvCache cache(backend, model.kv_layouts(type), pages);
  std::vector<PageTable> tables;
  StepBatch batch;
  for (const auto& ids : texts) {
    PageTable& table = tables.emplace_back(cache.pool());
    BL_CHECK(table.reserve(std::ssize(ids)));
    BatchSequence sequence;
    sequence.first_token = static_cast<std::int32_t>(batch.ids.size());
    sequence.tokens = static_cast<std::int32_t>(ids.size());
    sequence.pages.assign(table.pages().begin(), table.pages().end());
    sequence.reach = std::ssize(ids);
    if (!mixes.empty()) sequence.adapters = &mixes[batch.sequences.size()];
    batch.sequences.push_back(std::move(sequence));
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
      batch.logit_rows.push_back(static_cast<std::int32_t>(batch.ids.size()));
      batch.ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.slots.push_back(table.slot(i));
    }
  }
  const auto tokens = std::ssize(batch.ids);
  std::vector<Tensor> states;
  for (std::size_t block = 0; block <= model.spec().order.size(); ++block) {
    states.push_back(states_on_device(backend, model, tokens));
    batch.states.push_back({static_cast<std::int32_t>(block), states.back().view()});
  }
  Arena scratch(backend.allocate(model.work_bytes(tokens, tokens)));
  ExecContext ctx = backend.context(scratch);
  PassResult result;
  result.logits = on_host(backend, model.forward(ctx, batch, cache.layers()));
  for (const Tensor& each : states) result.states.push_back(on_host(backend, each.view()));
  return result;
}

// Runs the texts without a cache. Its arena has exactly the size that is stated beforehand: the
// scratch of a step and the keys and values of one block.
class WholePass {
 public:
  WholePass(GoldenRun& run, CacheType type, const Texts& texts, std::int64_t logit_rows)
      : run_(run),
        sequences_(pack_whole(texts)),
        layouts_(run.model().kv_layouts(type)),
        scratch_(run.backend().allocate(
            run.model().work_bytes(std::ssize(sequences_.batch.ids), logit_rows) +
            block_kv_bytes(layouts_, sequences_.pages))),
        ctx_(run.backend().context(scratch_)),
        layers_(take_block_kv(scratch_, layouts_, sequences_.pages)) {}

  StepBatch& batch() { return sequences_.batch; }
  void use(const Mixes& mixes) {
    for (std::size_t i = 0; i < mixes.size(); ++i) batch().sequences[i].adapters = &mixes[i];
  }
  std::int64_t tokens() const { return std::ssize(sequences_.batch.ids); }
  std::size_t mark() const { return scratch_.mark(); }

  std::vector<float> logits_at_once() {
    spoil_keys();
    ArenaScope scope(scratch_);
    return on_host(run_.backend(), run_.model().forward(ctx_, batch(), layers_));
  }

  // The three steps of a pass, each by a model that may hold that part alone.
  void embed(const Model& model, const Tensor& x) { model.embed(ctx_, batch(), x.view()); }
  void run_block(const Model& model, std::size_t number, const Tensor& x) {
    spoil_keys();
    model.run_block(ctx_, batch(), layers_, number, x.view());
  }
  std::vector<float> logits(const Model& model, const Tensor& x) {
    ArenaScope scope(scratch_);
    return on_host(run_.backend(), model.logits(ctx_, batch(), x.view()));
  }

  PassResult block_by_block() {
    const Model& model = run_.model();
    PassResult result;
    const Tensor x = states_on_device(run_.backend(), model, tokens());
    embed(model, x);
    result.states.push_back(on_host(run_.backend(), x.view()));
    for (std::size_t number = 0; number < model.spec().order.size(); ++number) {
      run_block(model, number, x);
      result.states.push_back(on_host(run_.backend(), x.view()));
    }
    result.logits = logits(model, x);
    EXPECT_EQ(on_host(run_.backend(), x.view()), result.states.back()) << "logits() changed x";
    return result;
  }

 private:
  // Fills the pages with bytes that are NaNs as F32 and as F16. A pass that reads keys which the
  // running block has not written then fails.
  void spoil_keys() {
    if (!run_.backend().reads_host_memory() || layers_.empty()) return;
    const auto bytes = block_kv_bytes(layouts_, sequences_.pages);
    std::memset(layers_.front().k, 0xff, bytes);
  }

  GoldenRun& run_;
  WholeSequences sequences_;
  std::vector<KvLayout> layouts_;
  Arena scratch_;
  ExecContext ctx_;
  std::vector<PagedKvView> layers_;
};

std::vector<float> chosen_rows(const std::vector<float>& logits, std::int64_t vocab,
                               const std::vector<std::int32_t>& rows) {
  std::vector<float> chosen;
  for (const std::int32_t row : rows) {
    chosen.insert(chosen.end(), logits.begin() + row * vocab, logits.begin() + (row + 1) * vocab);
  }
  return chosen;
}

void expect_whole_equals_paged(GoldenRun& run, CacheType type, const Texts& texts,
                               const Mixes& mixes = {}) {
  const PassResult paged = paged_pass(run, type, texts, mixes);
  const std::int64_t tokens = length_of(texts);
  WholePass all(run, type, texts, tokens);
  all.use(mixes);
  for (std::int32_t row = 0; row < tokens; ++row) all.batch().logit_rows.push_back(row);
  EXPECT_TRUE(all.logits_at_once() == paged.logits) << "at once";
  const PassResult blocks = all.block_by_block();
  ASSERT_EQ(blocks.states.size(), paged.states.size());
  for (std::size_t i = 0; i < paged.states.size(); ++i) {
    EXPECT_TRUE(blocks.states[i] == paged.states[i]) << "state " << i;
  }
  EXPECT_TRUE(blocks.logits == paged.logits) << "block by block";

  const std::vector<std::int32_t> rows = some_rows(tokens);
  WholePass few(run, type, texts, std::ssize(rows));
  few.use(mixes);
  few.batch().logit_rows = rows;
  const std::vector<float> expected = chosen_rows(paged.logits, run.model().vocab(), rows);
  EXPECT_TRUE(few.logits_at_once() == expected) << "some rows at once";
  EXPECT_TRUE(few.block_by_block().logits == expected) << "some rows, block by block";
}

void expect_cpu_equals_paged(const std::string& model) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16}) {
    SCOPED_TRACE(name_of(type));
    GoldenRun run("cpu", model_folder(model), type);
    expect_whole_equals_paged(run, type, uneven_texts(run.model()));
  }
}

// Calls compare(logits, golden) for the golden prompts, once computed by forward() and once block
// by block.
template <class Compare>
void compare_on_cuda(const std::string& model, Compare&& compare) {
  const Golden golden(model_folder(model));
  GoldenRun run(cuda_backend(), golden.folder(), CacheType::kF32);
  Texts texts;
  std::vector<float> expected;
  for (const GoldenPrompt& prompt : golden.prompts()) {
    texts.push_back(prompt.ids);
    expected.insert(expected.end(), prompt.logits.begin(), prompt.logits.end());
  }
  WholePass pass(run, CacheType::kF32, texts, length_of(texts));
  for (std::int32_t row = 0; row < pass.tokens(); ++row) pass.batch().logit_rows.push_back(row);
  for (const std::vector<float>& logits : {pass.logits_at_once(), pass.block_by_block().logits}) {
    ASSERT_EQ(logits.size(), expected.size());
    compare(logits, expected);
  }
}

std::string case_name_of(const testing::TestParamInfo<std::string>& info) {
  return case_name(info.param);
}

class WholeSequencesOf : public testing::TestWithParam<std::string> {};

TEST_P(WholeSequencesOf, RefEqualPagedOnes) {
  GoldenRun run("ref", model_folder(GetParam()), CacheType::kF32);
  expect_whole_equals_paged(run, CacheType::kF32, uneven_texts(run.model()));
}

TEST_P(WholeSequencesOf, CpuEqualPagedOnes) { expect_cpu_equals_paged(GetParam()); }

TEST_P(WholeSequencesOf, CudaAreCloseToTransformers) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  compare_on_cuda(GetParam(), [](const auto& logits, const auto& golden) {
    EXPECT_LE(largest_difference(logits, golden), 2e-2 * std::max(1.0, deviation(golden)));
  });
}

INSTANTIATE_TEST_SUITE_P(All, WholeSequencesOf,
                         testing::ValuesIn(sampled_golden_models({"archs-tiny", "hf-tiny"})),
                         case_name_of);

// These models are larger, so the naive backend would take long, and they amplify rounding.
class QuantizedWholeSequencesOf : public testing::TestWithParam<std::string> {};

TEST_P(QuantizedWholeSequencesOf, CpuEqualPagedOnes) { expect_cpu_equals_paged(GetParam()); }

TEST_P(QuantizedWholeSequencesOf, CudaAreCloseToReference) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  compare_on_cuda(GetParam(), [](const auto& logits, const auto& golden) {
    EXPECT_LE(median_difference(logits, golden), 5e-2);
  });
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedWholeSequencesOf,
                         testing::ValuesIn(golden_models({"exl2-gptq"})), case_name_of);

// The first sequence has an adapter for the blocks, the second none, and the third one for the
// embedding and the head.
TEST(WholeSequences, HaveAdaptersOfTheirOwn) {
  AdapterFiles ends;
  ends.add("lm_head", {64, 256});
  ends.add_embedding("model.embed_tokens", {256, 64});
  const std::filesystem::path folder = scratch_dir("whole-sequences");
  ends.write(folder);
  for (const char* backend : {"ref", "cpu"}) {
    SCOPED_TRACE(backend);
    GoldenRun run(backend, golden_folder("hf-tiny") / "llama", CacheType::kF32);
    const auto mix_of = [&](const std::filesystem::path& adapter) {
      return AdapterMix{{run.prepare_adapter(adapter).pack(run.backend()), 0.5f}};
    };
    const Mixes mixes{mix_of(golden_folder("lora-llama") / "all-r16-rslora"), {}, mix_of(folder)};
    Texts texts = uneven_texts(run.model());
    texts.resize(mixes.size());
    expect_whole_equals_paged(run, CacheType::kF32, texts, mixes);
  }
}

// Blocks without attention have no view of keys and values, wherever they are in the order.
TEST(WholeSequences, PassBlocksWithoutAttention) {
  LoadOptions options;
  options.spec.layer_map = "2,1,2,0,0";
  GoldenRun run("ref", golden_folder("archs-tiny") / "deci-lm", CacheType::kF32, options);
  ASSERT_EQ(run.model().kv_layers(), 3) << "the last block attends to nothing";
  expect_whole_equals_paged(run, CacheType::kF32, uneven_texts(run.model()));
}

// Embedding, each block and head are in a model of their own, which holds nothing else.
TEST(WholeSequences, RunThroughModelsThatHoldAPartEach) {
  for (const char* folder : {"hf-tiny/llama", "hf-tiny/gemma2", "archs-tiny/deci-lm"}) {
    SCOPED_TRACE(folder);
    GoldenRun run("cpu", model_folder(folder), CacheType::kF32);
    Backend& backend = run.backend();
    const Texts texts = uneven_texts(run.model());
    const PassResult paged = paged_pass(run, CacheType::kF32, texts, {});
    ModelLoader loader(backend, open_model_folder(model_folder(folder)), {});
    const Model front(backend, loader.load_parts(backend, {.end_block = 0, .back = false}));
    const Model back(backend, loader.load_parts(backend, {.end_block = 0, .front = false}));

    WholePass pass(run, CacheType::kF32, texts, length_of(texts));
    for (std::int32_t row = 0; row < pass.tokens(); ++row) pass.batch().logit_rows.push_back(row);
    const Tensor x = states_on_device(backend, run.model(), pass.tokens());
    pass.embed(front, x);
    const std::vector<std::int32_t>& order = run.model().spec().order;
    for (std::size_t number = 0; number < order.size(); ++number) {
      EXPECT_TRUE(on_host(backend, x.view()) == paged.states[number]) << "state " << number;
      const LoadRange range = LoadRange::block(order[number]);
      const Model one(backend, loader.load_parts(backend, range));
      pass.run_block(one, number, x);
    }
    EXPECT_TRUE(pass.logits(back, x) == paged.logits);
  }
}

// Running a part that was not loaded would give wrong states, so it is refused.
TEST(WholeSequences, PartsThatAreNotLoadedAreRefused) {
  const auto folder = model_folder("hf-tiny/llama");
  GoldenRun run("ref", folder, CacheType::kF32);
  Backend& backend = run.backend();
  ModelLoader loader(backend, open_model_folder(folder), {});
  const Model second(backend, loader.load_parts(backend, LoadRange::block(1)));
  WholePass pass(run, CacheType::kF32, {{1, 2, 3}}, 1);
  pass.batch().logit_rows = {2};
  const Tensor x = states_on_device(backend, run.model(), pass.tokens());
  pass.embed(run.model(), x);
  EXPECT_DEATH(pass.embed(second, x), "embedding_rows");
  EXPECT_DEATH(pass.run_block(second, 0, x), "present");
  EXPECT_DEATH(pass.logits(second, x), "head");
  pass.run_block(second, 1, x);
}

TEST(WholeSequences, HavePagesOfTheirOwn) {
  const Texts texts{std::vector<std::int32_t>(257, 5), {7}, std::vector<std::int32_t>(256, 6)};
  const WholeSequences whole = pack_whole(texts);
  const StepBatch& batch = whole.batch;
  EXPECT_EQ(whole.pages, 4);
  ASSERT_EQ(batch.ids.size(), 514u);
  ASSERT_EQ(batch.positions.size(), 514u);
  ASSERT_EQ(batch.slots.size(), 514u);
  EXPECT_TRUE(batch.logit_rows.empty());
  ASSERT_EQ(batch.sequences.size(), 3u);
  EXPECT_EQ(batch.sequences[0].pages, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(batch.sequences[1].pages, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(batch.sequences[2].pages, (std::vector<std::int32_t>{3}));
  for (const BatchSequence& sequence : batch.sequences) {
    EXPECT_EQ(sequence.past, 0);
    EXPECT_EQ(sequence.reach, sequence.tokens);
  }
  EXPECT_EQ(batch.sequences[1].first_token, 257);
  EXPECT_EQ(batch.sequences[2].first_token, 258);
  // The last rows of the first sequence, the second's only row, the third's first and last rows.
  const auto expect_row = [&](std::size_t row, std::int32_t id, std::int32_t position,
                              std::int64_t slot) {
    EXPECT_EQ(batch.ids[row], id) << row;
    EXPECT_EQ(batch.positions[row], position) << row;
    EXPECT_EQ(batch.slots[row], slot) << row;
  };
  expect_row(255, 5, 255, 255);
  expect_row(256, 5, 256, 256);
  expect_row(257, 7, 0, 512);
  expect_row(258, 6, 0, 768);
  expect_row(513, 6, 255, 1023);
}

// The memory has the size of the largest block; smaller ones use its beginning.
TEST(WholeSequences, ShareTheMemoryOfOneBlock) {
  const KvLayout small{.type = CacheType::kF16, .kv_heads = 1, .k_dim = 32, .v_dim = 32};
  const KvLayout large{.type = CacheType::kF16, .kv_heads = 4, .k_dim = 64, .v_dim = 32};
  const std::vector<KvLayout> layouts{small, large, small};
  constexpr std::size_t kLarge = 4 * kPageSlots * (64 + 32) * 2;
  EXPECT_EQ(block_kv_bytes(layouts, 3), 3 * kLarge);
  EXPECT_EQ(block_kv_bytes({}, 3), 0u);
  Arena arena(allocate_host(3 * kLarge));
  const std::vector<PagedKvView> views = take_block_kv(arena, layouts, 3);
  EXPECT_EQ(arena.mark(), 3 * kLarge);
  ASSERT_EQ(views.size(), 3u);
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i].k, views[0].k);
    EXPECT_EQ(views[i].v, views[i].k + 3 * layouts[i].k_page_bytes());
    EXPECT_EQ(views[i].layout.kv_heads, layouts[i].kv_heads);
    EXPECT_EQ(views[i].pages, 3);
  }
}

// Counts the allocations of the naive backend.
class CountedBackend final : public RefBackend {
 public:
  CountedBackend() : RefBackend(1) {}
  Buffer allocate(std::size_t bytes) override {
    ++taken;
    return RefBackend::allocate(bytes);
  }
  int taken = 0;
};

TEST(WholeSequences, TakeNothingBesideScratch) {
  auto counted = std::make_unique<CountedBackend>();
  CountedBackend& backend = *counted;
  GoldenRun run(std::move(counted), open_model_folder(golden_folder("hf-tiny") / "llama"),
                CacheType::kF16);
  const Texts texts = uneven_texts(run.model());
  WholePass pass(run, CacheType::kF16, texts, 1);
  pass.batch().logit_rows = {40};
  const std::size_t mark = pass.mark();
  const int taken = backend.taken;
  pass.logits_at_once();
  EXPECT_EQ(backend.taken, taken);
  pass.block_by_block();
  EXPECT_EQ(backend.taken, taken + 1) << "only the caller's own states";
  EXPECT_EQ(pass.mark(), mark);
}

void expect_error(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

TEST(WholeSequences, OfWrongTokensAreRefused) {
  GoldenRun run("ref", golden_folder("hf-tiny") / "gpt2", CacheType::kF32);
  const Model& model = run.model();
  const auto embed = [&](const std::vector<std::int32_t>& ids) {
    WholePass(run, CacheType::kF32, {ids}, 0).block_by_block();
  };
  expect_error(ErrorCode::kInvalidArgument,
               [&] { embed({static_cast<std::int32_t>(model.embedding_rows())}); });
  expect_error(ErrorCode::kLimit,
               [&] { embed(some_ids(model.spec().max_positions + 1, model.vocab())); });
}

}  // namespace
}  // namespace bl::test
