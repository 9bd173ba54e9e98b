#include "engine/embedding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/engine_core.h"

namespace bl {
namespace {

// Tokens that are computed between two steps of running requests.
constexpr std::int64_t kMostTokens = 512;
// How long to wait for running requests to give pages back.
constexpr std::chrono::seconds kPatience{120};
constexpr std::chrono::milliseconds kRetry{5};

struct Text {
  std::span<const std::int32_t> ids;
  std::int64_t length = 0;  // tokens that have to be computed
  std::int64_t cached = 0;
  std::shared_ptr<LentPages> lent{};  // null: not begun, or done
  std::vector<double> sum{};          // of the states so far, or the wanted state
  bool done() const { return cached == length; }
};

// A part of a text in a step.
struct Part {
  Text* text = nullptr;
  std::int64_t count = 0;
  LogitRows rows = LogitRows::kNone;
};

class Embedder {
 public:
  Embedder(const CallEngine& call, const EmbedRequest& request, const AdapterMix& adapters)
      : call_(call), request_(request), adapters_(adapters) {
    for (const std::vector<std::int32_t>& ids : request.texts) {
      // Attention looks back only, so nothing behind the first token changes its state.
      const std::int64_t length = request.pooling == Pooling::kFirst ? 1 : std::ssize(ids);
      texts_.push_back({.ids = ids, .length = length});
    }
  }
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;
  // The call may fail because the engine has ended, which took the pages back.
  ~Embedder() {
    for (Text& text : texts_) text.lent.reset();
    try {
      call_([](EngineCore& core) { core.take_back(); });
    } catch (const std::exception&) {
    }
  }

  std::vector<std::vector<float>> run() {
    auto moved = std::chrono::steady_clock::now();
    while (first_ < texts_.size()) {
      if (request_.cancelled && request_.cancelled()) {
        fail(ErrorCode::kCancelled, "the request was cancelled");
      }
      Outcome outcome = Outcome::kLater;
      call_([&](EngineCore& core) { outcome = step(core); });
      if (outcome != Outcome::kNoPages) {
        moved = std::chrono::steady_clock::now();
        continue;
      }
      if (std::chrono::steady_clock::now() - moved > kPatience) {
        fail(ErrorCode::kLimit,
             "the cache has no room for a text of {} tokens beside the requests that run; try "
             "again later",
             texts_[first_].length);
      }
      std::this_thread::sleep_for(kRetry);
    }
    std::vector<std::vector<float>> vectors;
    for (const Text& text : texts_) vectors.push_back(vector_of(text));
    return vectors;
  }

 private:
  enum class Outcome { kMoved, kLater, kNoPages };

  Outcome step(EngineCore& core) {
    const std::vector<Part> parts = next_parts(core);
    if (parts.empty()) return Outcome::kNoPages;
    // The engine does not go ahead while pages are lent, so this ends with the next step.
    if (core.has_step_ahead()) return Outcome::kLater;
    compute(core, parts);
    while (first_ < texts_.size() && texts_[first_].done()) ++first_;
    return Outcome::kMoved;
  }

  std::vector<Part> next_parts(EngineCore& core) {
    const StepModel::Facts facts = core.model().facts();
    std::int64_t tokens = std::min(facts.step_tokens, kMostTokens);
    std::int64_t rows = facts.logit_rows;
    std::vector<Part> parts;
    for (std::size_t i = first_; i < texts_.size() && tokens > 0 && rows > 0; ++i) {
      Text& text = texts_[i];
      if (text.done()) continue;
      if (!text.lent && !open(core, text)) break;
      Part part{&text, std::min(text.length - text.cached, tokens), LogitRows::kNone};
      if (request_.pooling == Pooling::kMean) {
        part.count = std::min(part.count, rows);
        part.rows = LogitRows::kAll;
        rows -= part.count;
      } else if (text.cached + part.count == text.length) {
        part.rows = LogitRows::kLast;
        --rows;
      }
      tokens -= part.count;
      parts.push_back(part);
    }
    return parts;
  }

  // Reserves all pages of the text at once: half of them would hold up others for nothing.
  static bool open(EngineCore& core, Text& text) {
    text.lent = core.lend();
    if (core.cache().reserve(*text.lent->table, text.length)) return true;
    text.lent.reset();
    core.take_back();
    return false;
  }

  void compute(EngineCore& core, std::span<const Part> parts) {
    std::vector<Sequence> sequences;
    sequences.reserve(parts.size());
    std::vector<StepItem> items;
    for (const Part& part : parts) {
      Sequence& sequence = sequences.emplace_back(core.model().pool());
      sequence.ids.assign(part.text->ids.begin(), part.text->ids.end());
      sequence.cached = part.text->cached;
      sequence.reach = std::ssize(part.text->ids);
      std::swap(sequence.pages, *part.text->lent->table);
      items.push_back({.sequence = &sequence,
                       .count = part.count,
                       .logits = part.rows,
                       .adapters = &adapters_});
    }
    const auto give_back = [&] {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        std::swap(sequences[i].pages, *parts[i].text->lent->table);
      }
    };
    try {
      core.model().run_states(items, states_);
      core.count_step();
    } catch (const std::exception&) {
      give_back();
      throw;
    }
    give_back();
    take_states(parts);
    core.take_back();
  }

  void take_states(std::span<const Part> parts) {
    std::size_t rows = 0;
    for (const Part& part : parts) {
      if (part.rows == LogitRows::kLast) ++rows;
      if (part.rows == LogitRows::kAll) rows += static_cast<std::size_t>(part.count);
    }
    const std::size_t hidden = rows == 0 ? 0 : states_.size() / rows;
    std::span<const float> left(states_);
    for (const Part& part : parts) {
      Text& text = *part.text;
      text.cached += part.count;
      const std::int64_t own = part.rows == LogitRows::kAll ? part.count : 1;
      for (std::int64_t i = 0; part.rows != LogitRows::kNone && i < own; ++i) {
        text.sum.resize(hidden);
        for (std::size_t k = 0; k < hidden; ++k) text.sum[k] += left[k];
        left = left.subspan(hidden);
      }
      if (text.done()) text.lent.reset();
    }
  }

  std::vector<float> vector_of(const Text& text) const {
    double scale = request_.pooling == Pooling::kMean ? 1.0 / static_cast<double>(text.length) : 1;
    double squares = 0;
    for (const double value : text.sum) squares += value * value;
    if (!std::isfinite(squares)) {
      fail(ErrorCode::kDevice, "the model's hidden states of this text are no numbers");
    }
    if (request_.normalize && squares > 0) scale = 1 / std::sqrt(squares);
    std::vector<float> vector;
    vector.reserve(text.sum.size());
    for (const double value : text.sum) vector.push_back(static_cast<float>(value * scale));
    return vector;
  }

  const CallEngine& call_;
  const EmbedRequest& request_;
  const AdapterMix& adapters_;
  std::vector<Text> texts_;
  std::size_t first_ = 0;  // the first text that is not done
  std::vector<float> states_;
};

}  // namespace

std::vector<std::vector<float>> embed_texts(const CallEngine& call, const EmbedRequest& request,
                                            const AdapterMix& adapters) {
  return Embedder(call, request, adapters).run();
}

}  // namespace bl
