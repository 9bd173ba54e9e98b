#pragma once
// Rows of a text, and models that read them, for the commands `eval …`.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/model_session.h"
#include "engine/step_runner.h"
#include "model_options.h"

namespace bl {

// The options that say which rows there are.
struct EvalText {
  std::string text;
  std::int64_t rows = 0;
  bool bos = false;

  template <class V>
  void visit(V&& v) {
    v.group("Text");
    v(text, {"--text", "FILE", "text to predict; tokenized as a whole, then cut into rows"});
    v(rows, {"--rows", "N", "use only the first N rows", "all whole rows"});
    v(bos, {"--bos", "", "put BOS before each row (always done if the model needs it)"});
  }

  // A session that gives logits for every token of a row. Throws UsageError.
  SessionOptions session_options(const ModelOptions& model) const;
};

// Tokens in a row: --ctx, or 2048.
std::int64_t row_tokens(const ModelOptions& model);

// The rows of the text as token ids, all of the same length.
struct EvalRows {
  std::vector<std::vector<std::int32_t>> rows;
  bool with_bos = false;
  std::int64_t length() const { return std::ssize(rows.front()); }
  std::int64_t tokens() const { return length() * std::ssize(rows); }
};

// Tokenizes with the session's tokenizer. Throws kInvalidArgument where the text is too short, or
// the tokenizer has no BOS that is asked for.
EvalRows read_rows(const EvalText& text, std::int64_t length, const ModelSession& session);

// What a message says of BOS.
const char* bos_note(const EvalRows& rows, const EvalText& text);

// Runs rows through one model, a few positions at a time.
class RowReader {
 public:
  explicit RowReader(ModelSession& session, AdapterMix adapters = {})
      : session_(session),
        runner_(session),
        sequence_(session.new_sequence()),
        adapters_(std::move(adapters)) {}

  void start(const std::vector<std::int32_t>& ids) {
    session_.check_ids(ids);
    runner_.truncate(sequence_, 0);
    sequence_.ids = ids;
    sequence_.reach = static_cast<std::int64_t>(ids.size());
  }
  // Returns the logits of the next `count` positions.
  StepLogits next(std::int64_t count) {
    const StepItem item{
        .sequence = &sequence_, .count = count, .logits = LogitRows::kAll, .adapters = &adapters_};
    return runner_.run({&item, 1});
  }

 private:
  ModelSession& session_;
  StepRunner runner_;
  Sequence sequence_;
  AdapterMix adapters_;
};

// The threads that judge logits on the host: those of the model's backend, or of its own where the
// model is on a card.
class EvalThreads {
 public:
  // `model` must outlive this.
  explicit EvalThreads(ModelSession& model);
  // Figures value(r) of each of `rows` rows, in their order. Throws what `value` throws.
  template <class Figure>
  std::vector<Figure> map(std::int64_t rows, const std::function<Figure(std::int64_t)>& value) {
    std::vector<Figure> figures(static_cast<std::size_t>(rows));
    for_rows(rows, [&](std::int64_t r) { figures[static_cast<std::size_t>(r)] = value(r); });
    return figures;
  }

 private:
  void for_rows(std::int64_t rows, const std::function<void(std::int64_t)>& body);

  std::optional<ThreadPool> own_;
  ThreadPool* pool_;
};

// Sums −ln p of the tokens that follow each position. Row r of `logits` belongs to position first +
// r.
struct Surprise {
  double nats = 0;
  std::int64_t tokens = 0;

  void add(const StepLogits& logits, const std::vector<std::int32_t>& ids, std::int64_t first,
           EvalThreads& threads);
  void add(const Surprise& other) {
    nats += other.nats;
    tokens += other.tokens;
  }
  double perplexity() const;
};

}  // namespace bl
