// Guesses by layers that read the target's hidden states: the same text with and without, wherever
// the keys of these layers have been in the meantime.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core_test.h"
#include "engine/hidden_draft.h"
#include "engine/open_model.h"
#include "on_cuda.h"
#include "support/data.h"
#include "support/error_of.h"
#include "tiny_model.h"
#include "together.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

// --- a model whose text is known, and which guesses right

class HiddenDraftCore : public CoreTest {
 protected:
  void start_hidden(FakeModel::Options options, std::int64_t tokens, std::int64_t running = 0) {
    if (options.draft_tokens == 0) options.draft_tokens = 5;
    start(options, running, nullptr, {std::make_shared<HiddenDraft>(), tokens});
  }
};

TEST_F(HiddenDraftCore, GuessesThatAreRightSaveSteps) {
  for (const int kind : {0, 1, 2, 3}) {
    SCOPED_TRACE(kind);
    start_hidden({.logit_rows = 64, .gives_logits = kind % 2 == 1, .draft_chains = kind > 1}, 5);
    std::vector<Asked*> asked;
    for (int i = 0; i < 4; ++i) asked.push_back(&ask(request(text(40 + 70 * i, i), 60)));
    run_all(100);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(asked[i]->ids[0], model_->continuation(text(40 + 70 * i, static_cast<int>(i)), 60));
    }
    const EngineStats stats = core_->stats();
    EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
    EXPECT_GE(stats.accepted_tokens, 4 * 45);
    // Sixty tokens in steps of six.
    EXPECT_LE(stats.steps, 14);
    expect_no_leak();
  }
}

TEST_F(HiddenDraftCore, NoMoreThanThereIsIsGuessed) {
  start_hidden({.logit_rows = 64, .draft_tokens = 3}, 16);
  const Asked& one = ask(request(text(40, 1), 60));
  run_all(100);
  EXPECT_EQ(one.ids[0], model_->continuation(text(40, 1), 60));
  EXPECT_EQ(core_->stats().steps, 1 + 59 / 4 + 1);
}

// Guesses for many texts go in as many forwards as there are rows and tokens for.
TEST_F(HiddenDraftCore, ManyTextsThanAForwardHasRoomFor) {
  for (const bool chains : {false, true}) {
    start_hidden({.step_tokens = 20, .logit_rows = 12, .draft_chains = chains}, 5);
    std::vector<Asked*> asked;
    for (int i = 0; i < 10; ++i) asked.push_back(&ask(request(text(30, i), 40)));
    run_all(2000);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(asked[i]->ids[0], model_->continuation(text(30, static_cast<int>(i)), 40));
    }
    EXPECT_GT(core_->stats().accepted_tokens, 0);
    expect_no_leak();
  }
}

// The slots behind a text are lent for the time of guessing: where there are none there is no
// guess, and nobody waits for those of another.
TEST_F(HiddenDraftCore, GuessingTakesNoPagesFromOthers) {
  for (const std::int32_t pages : {2, 3, 5}) {
    start_hidden({.logit_rows = 64, .pages = pages}, 5);
    model_->on_step = [](std::span<const StepItem> items) {
      for (const StepItem& item : items) {
        const Sequence& sequence = *item.sequence;
        EXPECT_LE(std::ssize(sequence.pages.pages()), pages_for(sequence.cached + item.count));
      }
    };
    std::vector<Asked*> asked;
    for (int i = 0; i < 3; ++i) asked.push_back(&ask(request(text(245, i), 30)));
    run_all(2000);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(asked[i]->ids[0], model_->continuation(text(245, static_cast<int>(i)), 30));
    }
    expect_no_leak();
  }
}

TEST_F(HiddenDraftCore, NoRoomIsNoGuess) {
  start_hidden({.context = 256, .logit_rows = 64, .pages = 1}, 5);
  const Asked& one = ask(request(text(248, 1), 8));
  run_all(100);
  EXPECT_EQ(one.ids[0], model_->continuation(text(248, 1), 8));
  // A stretch of six fits behind 248, 249 and 250 tokens.
  EXPECT_LE(model_->guessed, 4);
}

TEST_F(HiddenDraftCore, TextsThatComeAndGo) {
  std::mt19937 random(5);
  for (const std::int32_t pages : {4, 9, 40}) {
    for (const bool gives_logits : {false, true}) {
      host_pages_ = pages == 9 ? 6 : 0;
      start_hidden(
          {.step_tokens = 64, .logit_rows = 24, .pages = pages, .gives_logits = gives_logits},
          pages == 40 ? 0 : 4);
      std::vector<std::pair<Asked*, Request>> asked;
      for (int i = 0; i < 40; ++i) {
        // Some begin alike, and some are others' texts.
        Request r = request(text(20 + random() % 500, static_cast<int>(random() % 5)),
                            1 + static_cast<std::int64_t>(random() % 60));
        r.priority = static_cast<std::int32_t>(random() % 3);
        asked.emplace_back(&ask(r), r);
        for (std::uint32_t steps = random() % 8; steps > 0; --steps) step();
      }
      run_all(20000);
      for (const auto& [one, r] : asked) {
        EXPECT_EQ(one->ids[0], model_->continuation(r.prompt, r.sampling.max_tokens));
      }
      // As many guesses as pay may be none, by the clock.
      if (pages != 40) {
        EXPECT_GT(core_->stats().accepted_tokens, 0);
      }
      expect_no_leak();
      host_pages_ = 0;
    }
  }
}

TEST_F(HiddenDraftCore, AModelWithoutSuchLayersIsRefused) {
  error_of(
      [&] {
        start({}, 0, nullptr, {std::make_shared<HiddenDraft>(), 4});
      },
      ErrorCode::kInvalidArgument);
}

// --- tiny models

// Remembers what was guessed behind which text.
class RecordedDraft : public HiddenDraft {
 public:
  void propose(std::span<DraftJob> jobs) override {
    HiddenDraft::propose(jobs);
    for (const DraftJob& job : jobs) {
      if (!job.ids.empty()) guesses[{job.text.begin(), job.text.end()}] = job.ids;
    }
  }
  std::map<Ids, Ids> guesses;
};

struct TinyDraft {
  const char* name;
  fs::path target;
  fs::path layers;  // empty: the target's own
};

std::vector<TinyDraft> tiny_drafts() {
  const fs::path drafts = unpacked("draft-tiny");
  return {{"full", unpacked("hf-tiny") / "qwen3", drafts / "full"},
          {"sliding", unpacked("hf-tiny") / "llama", drafts / "sliding"},
          {"mtp", drafts / "mtp", {}}};
}

struct Setting {
  const char* backend = "cpu";
  std::int64_t tokens = 3;       // guessed; −1: no draft
  std::int64_t step_tokens = 0;  // of a step, at most
  std::int32_t pages = 0;
  std::int64_t sequences = 4;
  std::size_t kv_host = 0;
  bool deterministic = false;
};

std::unique_ptr<ModelSession> load(const TinyDraft& tiny, const Setting& setting) {
  SessionOptions options = textless_session(tiny.target, setting.backend, setting.sequences);
  options.context = options.longest = 1000;
  options.pages = setting.pages;
  options.kv_host = setting.kv_host;
  options.deterministic = setting.deterministic;
  if (setting.tokens < 0) return ModelSession::load(options);
  options.drafts = setting.tokens > 0 ? setting.tokens : DraftPolicy::kMost;
  options.mtp = tiny.layers.empty();
  if (!options.mtp) {
    options.draft_layers = std::make_shared<OpenedModel>(open_model(tiny.layers, {}));
  }
  return ModelSession::load(options);
}

struct Told {
  std::vector<Ids> ids;
  std::map<Ids, Ids> guesses;
  EngineStats stats;
};

// All of a group at once, group after group.
Told tell(const TinyDraft& tiny, const Setting& setting,
          const std::vector<std::vector<Request>>& groups) {
  const auto draft = std::make_shared<RecordedDraft>();
  EngineOptions options;
  options.step_tokens = setting.step_tokens;
  if (setting.tokens >= 0) options.speculation = {draft, setting.tokens};
  Told told;
  Engine engine(load(tiny, setting), options);
  for (const std::vector<Request>& group : groups) {
    std::vector<RequestHandle> handles = submit_together(engine, group);
    for (RequestHandle& handle : handles) told.ids.push_back(handle.wait().front().ids);
  }
  told.stats = engine.settled_stats();
  told.guesses = draft->guesses;
  return told;
}

std::vector<Request> tiny_requests(std::int64_t tokens, double temperature, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Request> out;
  for (std::size_t i = 0; i < 4; ++i) {
    Request request;
    // Who comes later is longer, and so the first to need another page.
    for (std::int64_t n = tokens - 15 + 5 * static_cast<std::int64_t>(i); n > 0; --n) {
      request.prompt.push_back(static_cast<std::int32_t>(random() % 96));
    }
    request.sampling.temperature = temperature;
    request.sampling.seed = i;
    if (i == 3) request.sampling.frequency_penalty = 0.5;
    request.sampling.max_tokens = 24;
    request.ignore_end_tokens = true;
    out.push_back(std::move(request));
  }
  return out;
}

// Texts that both have guessed behind, and how many of these guesses differ.
void expect_same_guesses(const Told& a, const Told& b) {
  std::size_t common = 0;
  for (const auto& [text, ids] : a.guesses) {
    const auto other = b.guesses.find(text);
    if (other == b.guesses.end()) continue;
    ++common;
    const std::size_t count = std::min(ids.size(), other->second.size());
    EXPECT_EQ(
        Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)),
        Ids(other->second.begin(), other->second.begin() + static_cast<std::ptrdiff_t>(count)))
        << text.size() << " tokens";
  }
  EXPECT_GE(common, 20u);
}

TEST(HiddenDraftModels, SameIds) {
  for (const TinyDraft& tiny : tiny_drafts()) {
    for (const char* backend : {"cpu", "ref"}) {
      for (const double temperature : {0.0, 1.0}) {
        SCOPED_TRACE(std::string(tiny.name) + " on " + backend);
        const auto wanted = tiny_requests(30, temperature, 3);
        const Told plain = tell(tiny, {.backend = backend, .tokens = -1}, {wanted});
        for (const std::int64_t tokens : {3, 0}) {
          const Told with = tell(tiny, {.backend = backend, .tokens = tokens}, {wanted});
          EXPECT_EQ(with.ids, plain.ids);
          // What pays is a question of the clock.
          EXPECT_TRUE(tokens == 0 || with.stats.drafted_tokens > 30);
        }
      }
    }
  }
}

// Where a text's pages come from is nothing to its guesses: short steps, pages of texts before it,
// pages that were given up and computed again, pages that were on the host. A chain lacks the state
// before what it finds computed, so its guesses may differ there; no text does.
TEST(HiddenDraftModels, SameGuessesWhereverPagesComeFrom) {
  for (const TinyDraft& tiny : tiny_drafts()) {
    for (const double temperature : {0.0, 1.0}) {
      SCOPED_TRACE(tiny.name);
      const auto expect_same = [&](const Told& a, const Told& b) {
        if (!tiny.layers.empty()) expect_same_guesses(a, b);
      };
      const auto wanted = tiny_requests(510, temperature, 4);
      const auto others = tiny_requests(510, temperature, 5);
      const Told plain = tell(tiny, {.tokens = -1}, {wanted});
      const Told whole = tell(tiny, {}, {wanted});
      EXPECT_EQ(whole.ids, plain.ids);

      const Told chunked = tell(tiny, {.step_tokens = 37}, {wanted});
      EXPECT_EQ(chunked.ids, plain.ids);
      expect_same(whole, chunked);

      const Told again = tell(tiny, {}, {wanted, wanted});
      EXPECT_EQ(Ids(again.ids[4]), plain.ids[0]);
      EXPECT_GT(again.stats.cache.pages_shared, 0);
      expect_same(whole, again);

      const Told preempted = tell(tiny, {.pages = 5}, {wanted});
      EXPECT_EQ(preempted.ids, plain.ids);
      EXPECT_GT(preempted.stats.preemptions, 0);
      expect_same(whole, preempted);

      const Told moved =
          tell(tiny, {.pages = 12, .kv_host = std::size_t{64} << 20}, {wanted, others, wanted});
      EXPECT_EQ(moved.ids[8], plain.ids[0]);
      EXPECT_GT(moved.stats.cache.pages_stored, 0);
      expect_same(whole, moved);
    }
  }
}

// Steps of the same numbers of texts and guesses come again, so recorded ones are repeated.
class HiddenDraftOnCuda : public OnCuda {};
TEST_F(HiddenDraftOnCuda, SameIds) {
  for (const TinyDraft& tiny : tiny_drafts()) {
    for (const double temperature : {0.0, 1.0}) {
      SCOPED_TRACE(tiny.name);
      const auto wanted = tiny_requests(300, temperature, 6);
      Setting setting{.backend = "cuda:0", .tokens = -1, .deterministic = true};
      const Told plain = tell(tiny, setting, {wanted, wanted});
      setting.tokens = 3;
      const Told with = tell(tiny, setting, {wanted, wanted});
      EXPECT_EQ(with.ids, plain.ids);
      EXPECT_GT(with.stats.drafted_tokens, 60);
    }
  }
}

// A page with keys of such layers is not one without, nor one of other layers.
TEST(HiddenDraftModels, PagesAreOfTheirKind) {
  const std::size_t more[] = {2, 3, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const TinyDraft tiny = tiny_drafts()[i];
    const PageKind plain = load(tiny, {.tokens = -1})->page_kind();
    const PageKind with = load(tiny, {})->page_kind();
    EXPECT_FALSE(plain.model == with.model);
    EXPECT_EQ(with.layers.size(), plain.layers.size() + more[i]);
    EXPECT_TRUE(with == load(tiny, {})->page_kind());
  }
}

TEST(HiddenDraftModels, KnowsDraftLayersByTheirConfig) {
  EXPECT_TRUE(is_draft_layers(open_model(unpacked("draft-tiny") / "full", {}), {}));
  EXPECT_FALSE(is_draft_layers(open_model(unpacked("hf-tiny") / "qwen3", {}), {}));
}

}  // namespace
}  // namespace bl::test
