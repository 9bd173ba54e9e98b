// What the engine costs by itself: scheduling, pages, sampling by the model, text and events, on a
// model that computes nothing. Figures: bench/results.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

constexpr std::int32_t kVocab = 1000;

// Chooses tokens itself, at once.
class NoModel : public StepModel {
 public:
  explicit NoModel(std::int64_t sequences)
      : sequences_(sequences), pool_(static_cast<std::int32_t>(sequences) * 16) {}
  Facts facts() const override {
    return {.vocab = kVocab,
            .ids = kVocab,
            .context = 4096,
            .step_tokens = 2048,
            .logit_rows = sequences_};
  }
  PagePool& pool() override { return pool_; }
  StepOutput run(std::span<const StepItem> items) override {
    ids_.clear();
    for (const StepItem& item : items) {
      item.sequence->cached += item.count;
      if (item.logits == LogitRows::kNone) continue;
      ids_.push_back((item.sequence->ids.back() * 31 + 7) % kVocab);
    }
    return {{}, ids_};
  }
  void copy_page(std::int32_t, std::int32_t) override {}

 private:
  std::int64_t sequences_;
  PagePool pool_;
  std::vector<std::int32_t> ids_;
};

// Words of three letters.
std::unique_ptr<Tokenizer> words() {
  Json vocab = Json::object();
  for (std::int32_t id = 0; id < kVocab; ++id) {
    std::string word = "w";
    for (std::int32_t rest = id, i = 0; i < 3; ++i, rest /= 10) {
      word += static_cast<char>('a' + rest % 10);
    }
    vocab[word] = id;
  }
  const Json document{{"version", "1.0"},
                      {"added_tokens", Json::array()},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                      {"post_processor", nullptr},
                      {"decoder", {{"type", "ByteLevel"}}},
                      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(json_text(document), "{}", "words");
}

// Tokens a second through the whole engine; `state.range(0)` sequences at once, everything on the
// processors of this process (`taskset -c 0` for one).
void engine_tokens(benchmark::State& state) {
  constexpr std::int64_t kTokens = 1024;
  const std::int64_t sequences = state.range(0);
  const auto tokenizer = words();
  std::int64_t generated = 0;
  std::int64_t prompt = 0;
  Engine engine(std::make_unique<NoModel>(sequences), tokenizer.get(), {}, {});
  for (auto _ : state) {
    std::vector<RequestHandle> handles;
    for (std::int64_t i = 0; i < sequences; ++i) {
      Request request;
      for (std::int32_t t = 0; t < 64; ++t)
        request.prompt.push_back(static_cast<std::int32_t>(++prompt % kVocab));
      request.sampling.temperature = 0;
      request.sampling.max_tokens = kTokens;
      request.sampling.stop_strings = {"</answer>"};
      handles.push_back(engine.submit(std::move(request)));
    }
    for (RequestHandle& handle : handles) {
      while (const std::optional<Event> event = handle.next()) {
        generated += static_cast<std::int64_t>(event->ids.size());
        benchmark::DoNotOptimize(event->text.data());
      }
    }
  }
  state.SetItemsProcessed(generated);
}
BENCHMARK(engine_tokens)
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bl

BENCHMARK_MAIN();
