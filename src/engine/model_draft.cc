#include "engine/model_draft.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/kept_samplers.h"
#include "engine/session_model.h"
#include "sample/sampler_chain.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

// The weight of a new measurement of a round.
constexpr double kNewRound = 0.2;
// How many tokens are read to measure what reading costs.
constexpr std::int64_t kMeasuredRead = 16;

}  // namespace

// One text, as far as the draft model has computed it.
struct ModelDraft::Text : DraftMemory {
  Text(PagePool& pool, PrefixCache& from, std::string of)
      : sequence(pool), cache(from), salt(std::move(of)) {}
  ~Text() override { leave(); }

  std::int64_t length() const { return static_cast<std::int64_t>(sequence.ids.size()); }
  // Gives the pages back. Those without guesses stay in the cache for texts that begin alike,
  // unless there is no memory to list them, or a look-up that failed half-way has left the cursor
  // ahead of them.
  void leave() noexcept {
    const std::int64_t known = std::min(certain, sequence.cached);
    try {
      if (known > 0 && known >= cursor.tokens) {
        cache.publish_all(salt, std::span(sequence.ids).first(static_cast<std::size_t>(known)),
                          sequence.pages, cursor);
      }
    } catch (const std::bad_alloc&) {
    }
    cache.release(sequence.pages, cursor);
    sequence.cached = 0;
  }

  Sequence sequence;
  PrefixCursor cursor;
  PrefixCache& cache;
  std::string salt;
  std::int64_t certain = 0;  // tokens that are not guesses
  std::size_t checked = 0;   // first ids that the draft is known to have
};

ModelDraft::ModelDraft(std::unique_ptr<ModelSession> session)
    : ModelDraft(std::make_unique<SessionModel>(*session),
                 session->has_text() ? &session->tokenizer() : nullptr) {
  session_ = std::move(session);
  measure_prices();
}

ModelDraft::ModelDraft(std::unique_ptr<StepModel> model, const Tokenizer* tokenizer)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      facts_(model_->facts()),
      cache_(
          model_->pool(),
          [this](std::int32_t to, std::int32_t from) { model_->copy_page(to, from); },
          model_->least_copied()),
      row_sampler_(model_->threads()) {}

ModelDraft::~ModelDraft() = default;

// The first step of a process touches all weights and takes several times as long as later ones.
// Making it here keeps answers from waiting for it, and tells whether guessing may pay before there
// are any.
void ModelDraft::measure_prices() {
  const std::int64_t reads = std::min({kMeasuredRead, facts_.step_tokens, facts_.context - 2});
  Sequence sequence(model_->pool());
  sequence.reach = facts_.context;
  sequence.ids.assign(static_cast<std::size_t>(reads + 2), 0);
  if (reads < 2 || !sequence.pages.reserve(reads + 2)) return;
  const auto seconds_of = [&](std::int64_t tokens, LogitRows rows) {
    const StepItem item{.sequence = &sequence, .count = tokens, .logits = rows};
    const auto start = Clock::now();
    model_->run({&item, 1});
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  seconds_of(1, LogitRows::kLast);
  round_seconds_ = seconds_of(1, LogitRows::kLast);
  read_seconds_ = seconds_of(reads, LogitRows::kNone) / static_cast<double>(reads);
}

void ModelDraft::check_target(const Tokenizer* tokenizer, std::int64_t vocab) {
  vocab_ = vocab;
  if (tokenizer != nullptr && tokenizer_ != nullptr) {
    check_same_vocabulary(*tokenizer, *tokenizer_);
  } else if (vocab != facts_.vocab) {
    fail(ErrorCode::kInvalidArgument,
         "the draft has {} tokens and the model {}: a draft needs the same vocabulary",
         facts_.vocab, vocab);
  }
}

std::string ModelDraft::salt_of(const DraftJob& job) const {
  const std::int64_t reach = std::min(job.reach, facts_.context);
  return fmt::format("{}:{}", model_->alike_reach(reach), job.salt);
}

std::int64_t ModelDraft::unread(const DraftJob& job) const {
  return static_cast<std::int64_t>(job.text.size()) - cache_.known_tokens(salt_of(job), job.text);
}

// Brings the draft's copy of the text up to date with the job's. Null where the draft cannot guess
// for it: it is too long, or has an id that the draft does not know.
ModelDraft::Text* ModelDraft::follow(DraftJob& job) {
  if (*job.memory == nullptr) {
    auto text = std::make_unique<Text>(model_->pool(), cache_, salt_of(job));
    text->sequence.reach = std::min(job.reach, facts_.context);
    *job.memory = std::move(text);
  }
  Text& text = static_cast<Text&>(**job.memory);
  Sequence& sequence = text.sequence;
  const auto length = static_cast<std::int64_t>(job.text.size());
  // The draft's own guesses behind that may have become the text.
  const std::int64_t most = std::min(length, text.length());
  std::int64_t same = std::min(job.same, most);
  while (same < most &&
         sequence.ids[static_cast<std::size_t>(same)] == job.text[static_cast<std::size_t>(same)]) {
    ++same;
  }
  // The last token is computed in any case: its logits give the first guess.
  sequence.cached =
      cache_.truncate(sequence.pages, text.cursor, std::min({sequence.cached, same, length - 1}));
  sequence.ids.resize(static_cast<std::size_t>(same));
  sequence.ids.insert(sequence.ids.end(), job.text.begin() + static_cast<std::ptrdiff_t>(same),
                      job.text.end());
  text.certain = length;
  for (text.checked = std::min(text.checked, static_cast<std::size_t>(same));
       text.checked < job.text.size(); ++text.checked) {
    if (job.text[text.checked] >= facts_.ids) break;
  }
  if (length >= facts_.context || text.checked < job.text.size()) {
    text.leave();
    return nullptr;
  }
  const auto certain = std::span(sequence.ids).first(static_cast<std::size_t>(length - 1));
  if (sequence.cached >= text.cursor.tokens + kPageSlots) {
    cache_.publish(text.salt, certain.first(static_cast<std::size_t>(sequence.cached)),
                   sequence.pages, text.cursor);
  }
  if (length - sequence.cached > 1 && sequence.pages.capacity() == sequence.cached &&
      text.cursor.tokens == sequence.cached) {
    sequence.cached = cache_.adopt(text.salt, certain, sequence.pages, text.cursor);
  }
  return &text;
}

void ModelDraft::propose(std::span<DraftJob> jobs) {
  active_.clear();
  for (DraftJob& job : jobs) {
    job.ids.clear();
    job.confidence = 0;
    Text* text = follow(job);
    if (text == nullptr) continue;
    const std::int64_t most = std::min(job.most, facts_.context - text->length());
    if (most > 0) active_.push_back({&job, text, most});
  }
  // Texts with the least to compute come first, so that a long prompt holds up no other text.
  std::stable_sort(active_.begin(), active_.end(), [](const Active& a, const Active& b) {
    return a.text->length() - a.text->sequence.cached < b.text->length() - b.text->sequence.cached;
  });
  KeptSamplers samplers;
  for (const Active& active : active_) samplers.keep(*active.job->sampler);
  while (run_round()) {
  }
}

// Adds what the step can compute of a text to its items. True where that gives the next guess.
bool ModelDraft::add_item(const Active& active, Budget& budget) {
  Sequence& sequence = active.text->sequence;
  const std::int64_t missing = active.text->length() - sequence.cached;
  std::int64_t count = std::min(missing, budget.tokens);
  const bool draws = count == missing && budget.rows > 0;
  if (count == missing && !draws) --count;
  if (count <= 0 || !cache_.reserve(sequence.pages, sequence.cached + count)) return false;
  items_.push_back(
      {.sequence = &sequence,
       .count = count,
       .logits = draws ? LogitRows::kLast : LogitRows::kNone,
       .sampling = draws && active.job->likeliest ? &active.job->sampler->params() : nullptr});
  budget.tokens -= count;
  budget.rows -= draws ? 1 : 0;
  budget.reads = budget.reads || count > 4;
  return draws;
}

// One step of the draft model: the next token for each text that it has read. False when no text
// wants another one.
bool ModelDraft::run_round() {
  items_.clear();
  Budget budget{facts_.step_tokens, facts_.logit_rows};
  std::vector<Active*> drawing;
  for (Active& active : active_) {
    if (add_item(active, budget)) {
      drawing.push_back(&active);
    } else {
      active.most = 0;
    }
  }
  if (items_.empty()) return false;
  const auto start = Clock::now();
  const StepOutput output = model_->run(items_);
  take_rows(drawing, output);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (budget.reads) {
    const double each = seconds / static_cast<double>(facts_.step_tokens - budget.tokens);
    read_seconds_ += (read_seconds_ == 0 ? 1 : kNewRound) * (each - read_seconds_);
  } else {
    round_seconds_ += (round_seconds_ == 0 ? 1 : kNewRound) * (seconds - round_seconds_);
  }
  std::erase_if(active_,
                [](const Active& active) { return std::ssize(active.job->ids) >= active.most; });
  return !active_.empty();
}

// The row with the width of the target's; tokens that the draft does not have are impossible.
std::span<const float> ModelDraft::fitted(std::span<const float> row, std::size_t index) {
  const auto vocab = static_cast<std::size_t>(vocab_);
  if (row.size() >= vocab) return row.first(vocab);
  if (padded_.size() <= index) padded_.resize(index + 1);
  padded_[index].assign(vocab, -std::numeric_limits<float>::infinity());
  std::copy(row.begin(), row.end(), padded_[index].begin());
  return padded_[index];
}

void ModelDraft::take_rows(const std::vector<Active*>& rows, const StepOutput& output) {
  tasks_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DraftJob& job = *rows[i]->job;
    RowTask& task = tasks_.emplace_back();
    if (output.chose(static_cast<std::int64_t>(i))) {
      task.id = output.ids[i];
      continue;
    }
    task.logits = fitted(output.logits.row(static_cast<std::int64_t>(i)), i);
    task.sampler = job.sampler;
    task.history = rows[i]->text->sequence.ids;
    task.generated = job.generated + static_cast<std::int64_t>(job.ids.size());
    task.rewinds = job.rewinds;
    task.end_tokens = job.end_tokens;
  }
  row_sampler_.run(tasks_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t id = tasks_[i].id;
    // A damaged row gives no guess; an id that the target does not have is none.
    if (tasks_[i].error || id < 0 || id >= vocab_) {
      rows[i]->most = 0;
      continue;
    }
    DraftJob& job = *rows[i]->job;
    job.ids.push_back(id);
    rows[i]->text->sequence.ids.push_back(id);
    // Nothing follows an end token, and the draft cannot read a token that it does not have.
    if (is_end(job.end_tokens, id) || id >= facts_.ids) rows[i]->most = 0;
  }
}

void check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  if (target.vocab_size() != draft.vocab_size()) {
    fail(ErrorCode::kInvalidArgument,
         "the draft has {} tokens and the model {}: a draft needs the same vocabulary",
         draft.vocab_size(), target.vocab_size());
  }
  for (int id = 0; id < target.vocab_size(); ++id) {
    if (target.id_to_token(id) == draft.id_to_token(id)) continue;
    fail(ErrorCode::kInvalidArgument,
         "token {} is '{}' for the draft and '{}' for the model: a draft needs the same vocabulary",
         id, draft.id_to_token(id), target.id_to_token(id));
  }
}

}  // namespace bl
