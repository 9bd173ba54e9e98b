#include "engine/step_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "model/step_batch.h"

namespace bl {
namespace {

// Adds an item to the batch. `known`: its tokens are among the sequence's ids, which the token of a
// step that is repeated is not yet.
void add_item(const StepItem& item, bool known, StepBatch& batch) {
  Sequence& sequence = *item.sequence;
  const std::int64_t begin = sequence.cached;
  const std::int64_t end = begin + item.count;
  const auto length = static_cast<std::int64_t>(sequence.ids.size());
  BL_CHECK(item.count > 0 && (known ? end <= length : end == length + 1));
  if (!sequence.pages.reserve(end)) {
    fail(ErrorCode::kLimit,
         "the cache has no page left for position {} of a sequence; a larger --ctx or a smaller "
         "batch makes room",
         end - 1);
  }
  BatchSequence entry;
  entry.first_token = static_cast<std::int32_t>(batch.ids.size());
  entry.tokens = static_cast<std::int32_t>(item.count);
  entry.past = static_cast<std::int32_t>(begin);
  const auto pages = sequence.pages.pages();
  entry.pages.assign(pages.begin(), pages.end());
  entry.reach = sequence.reach;
  entry.adapters = item.adapters;
  for (std::int64_t position = begin; position < end; ++position) {
    if (item.logits == LogitRows::kAll ||
        (item.logits == LogitRows::kLast && position + 1 == end)) {
      batch.logit_rows.push_back(static_cast<std::int32_t>(batch.ids.size()));
    }
    batch.ids.push_back(known ? sequence.ids[static_cast<std::size_t>(position)] : 0);
    batch.positions.push_back(static_cast<std::int32_t>(position));
    batch.slots.push_back(sequence.pages.slot(position));
  }
  batch.sequences.push_back(std::move(entry));
}

// Adds what a draft head reads behind the item's text: its last token followed by mask tokens in
// the places of the guesses; or, where guesses are chained, the newest token that is known or
// guessed.
void add_guess(const StepItem& item, const DraftSpec& draft, StepBatch& batch) {
  const Sequence& sequence = *item.sequence;
  const auto guessed = static_cast<std::int64_t>(item.guessed.size());
  const std::int64_t begin = sequence.cached + guessed;
  const std::int64_t tokens = draft.chain ? 1 : draft.stretch;
  BL_CHECK(sequence.cached + 1 == static_cast<std::int64_t>(sequence.ids.size()));
  BL_CHECK(item.count > 0 && item.count < draft.stretch);
  BL_CHECK(draft.chain ? item.count == guessed + 1 : guessed == 0);
  BL_CHECK(sequence.pages.capacity() >= begin + tokens);
  BatchSequence entry;
  entry.first_token = static_cast<std::int32_t>(batch.ids.size());
  entry.tokens = static_cast<std::int32_t>(tokens);
  entry.past = static_cast<std::int32_t>(begin);
  const auto pages = sequence.pages.pages();
  entry.pages.assign(pages.begin(), pages.end());
  entry.reach = sequence.reach;
  for (std::int64_t i = 0; i < tokens; ++i) {
    if (draft.chain || (i > 0 && i <= item.count)) {
      batch.logit_rows.push_back(static_cast<std::int32_t>(batch.ids.size()));
    }
    const std::int32_t last = guessed > 0 ? item.guessed.back() : sequence.ids.back();
    batch.ids.push_back(i == 0 ? last : draft.mask);
    batch.positions.push_back(static_cast<std::int32_t>(begin + i));
    batch.slots.push_back(sequence.pages.slot(begin + i));
  }
  batch.sequences.push_back(std::move(entry));
}

// The key under which a step with this batch is recorded; 0: it cannot be recorded.
std::uint64_t mixed_key(std::uint64_t key, const StepBatch& batch, std::uint64_t choice) {
  if (key == 0) return 0;
  std::uint64_t hash = key;
  for (const std::uint64_t part :
       {std::uint64_t{batch.ids.size()}, std::uint64_t{batch.logit_rows.size()},
        std::uint64_t{batch.carried.kept.size()}, choice}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash | 1u;
}

// The key of a step of the model: nothing else decides which kernels it launches.
std::uint64_t record_key(const Backend& backend, const StepBatch& batch, std::uint64_t choice) {
  if (!batch.states.empty()) return 0;
  std::vector<SequenceSpan> spans;
  for (const BatchSequence& s : batch.sequences) {
    if (s.adapters != nullptr && !s.adapters->empty()) return 0;  // launches vary with adapters
    spans.push_back({s.first_token, s.tokens, s.past, s.pages.data()});
  }
  return mixed_key(backend.step_key(spans), batch, choice);
}

}  // namespace

StepRunner::StepRunner(ModelSession& session)
    : session_(session), carried_(session.carried(), session.carried_places()) {
  for (std::size_t step_buffer = 0; step_buffer < steps_.size(); ++step_buffer) {
    steps_[step_buffer].rows.fetch_to(session.fetched(step_buffer),
                                      session.fetched_logits(step_buffer));
  }
}

// A step that was not taken may still write its results to the host.
StepRunner::~StepRunner() {
  if (under_way_ > 0) session_.backend().synchronize();
}

// Forgets steps that will not be taken, after a failure. Waits for what they still write to the
// host, before the next step uses that memory.
void StepRunner::forget() {
  if (std::exchange(under_way_, 0) > 0) session_.backend().synchronize();
}

StepLogits StepRunner::run(std::span<const StepItem> items, std::span<const StateRows> states) {
  forget();
  enqueue(items, Way::kLogits, states);
  return take().logits;
}

StepOutput StepRunner::choose(std::span<const StepItem> items) {
  start(items);
  return take();
}

void StepRunner::start(std::span<const StepItem> items) {
  forget();
  enqueue(items, Way::kChosen);
}

bool StepRunner::repeat(std::span<const StepItem> items) {
  const Step& before = steps_[static_cast<std::size_t>(newest_)];
  if (under_way_ != 1 || !before.rows.any()) return false;
  // The repeated step would overwrite the logits of a row that is left behind.
  const bool all = std::ssize(items) == before.rows.rows();
  if (!all && !before.rows.needs_no_logits()) return false;
  if (session_.vocab() > session_.model().embedding_rows()) return false;
  // Side layers guess from each token before the next step.
  if (session_.model().draft_head() != nullptr) return false;
  for (const StepItem& item : items) {
    if (item.count != 1 || item.logits != LogitRows::kLast || item.sampling == nullptr ||
        needs_history(*item.sampling) || (item.adapters != nullptr && !item.adapters->empty())) {
      return false;
    }
  }
  enqueue(items, Way::kAgain);
  return true;
}

void StepRunner::enqueue(std::span<const StepItem> items, Way way,
                         std::span<const StateRows> states) {
  const bool again = way == Way::kAgain;
  const int step_buffer = under_way_ == 0 ? 0 : 1 - newest_;
  Step& step = steps_[static_cast<std::size_t>(step_buffer)];
  StepBatch batch;
  const auto chosen = way == Way::kLogits ? std::span<const StepItem>() : items;
  step.rows.collect(chosen, session_.backend().ops(), {session_.vocab(), session_.choosable()});
  for (const StepItem& item : items) add_item(item, !again, batch);
  carried_.join_step(items, batch);
  batch.states.assign(states.begin(), states.end());
  for (StateRows& rows : batch.states) {
    rows.to = slice_rows(rows.to, 0, static_cast<std::int64_t>(batch.logit_rows.size()));
  }
  BL_CHECK(static_cast<std::int64_t>(batch.ids.size()) <= session_.step_tokens());
  BL_CHECK(static_cast<std::int64_t>(batch.logit_rows.size()) <= session_.logit_rows());
  BL_CHECK(!again || step.rows.any());
  ExecContext context = session_.begin_step();
  Backend& backend = session_.backend();
  const std::uint64_t key =
      session_.uses_own_ops()
          ? record_key(backend, batch, step.rows.key() ^ (again ? 1u << 31 : 0u))
          : 0;
  backend.run_step(key, step_buffer, context, [&](ExecContext& ctx) {
    const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
    const std::int32_t* ids = step.rows.any() ? step.rows.place(ctx, rows) : nullptr;
    // The step before has left its ids where this one will leave its own.
    if (again) batch.chosen = ids;
    step.logits = session_.model().forward(ctx, batch, session_.cache().layers());
    if (step.rows.any()) step.rows.enqueue(ctx, backend, step.logits);
  });
  if (!again) {
    for (const StepItem& item : items) item.sequence->cached += item.count;
  }
  newest_ = step_buffer;
  ++under_way_;
}

StepOutput StepRunner::draft(std::span<const StepItem> items) {
  const DraftHead* head = session_.model().draft_head();
  BL_CHECK(head != nullptr);
  forget();
  Step& step = steps_[0];
  StepBatch batch;
  step.rows.collect(items, session_.backend().ops(), {session_.vocab(), session_.choosable()});
  for (const StepItem& item : items) add_guess(item, head->spec(), batch);
  carried_.join_round(items, batch);
  BL_CHECK(static_cast<std::int64_t>(batch.ids.size()) <= session_.step_tokens());
  BL_CHECK(static_cast<std::int64_t>(batch.logit_rows.size()) <= session_.logit_rows());
  ExecContext context = session_.begin_step();
  Backend& backend = session_.backend();
  // The keys of the model's own steps do not have this bit.
  const std::uint64_t choice = step.rows.key() ^ std::uint64_t{1} << 32;
  const std::uint64_t key = mixed_key(head->step_key(batch), batch, choice);
  backend.run_step(key, 0, context, [&](ExecContext& ctx) {
    const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
    if (step.rows.any()) step.rows.place(ctx, rows);
    step.logits = session_.model().draft(ctx, batch, session_.cache().layers());
    if (step.rows.any()) step.rows.enqueue(ctx, backend, step.logits);
  });
  newest_ = 0;
  ++under_way_;
  return take();
}

StepOutput StepRunner::take() {
  BL_CHECK(under_way_ > 0);
  const bool repeated = under_way_ == 2;
  const int step_buffer = repeated ? 1 - newest_ : newest_;
  --under_way_;
  Step& step = steps_[static_cast<std::size_t>(step_buffer)];
  StepOutput output;
  if (step.rows.any()) {
    session_.backend().wait_step(step_buffer);
    step.rows.read(output);
  }
  bool lacks_rows = !step.rows.any();
  for (std::int64_t row = 0; row < std::ssize(output.ids); ++row) {
    lacks_rows = lacks_rows || output.lost(row);
  }
  if (lacks_rows && !repeated) output.logits = on_host(step.logits, output);
  return output;
}

StepLogits StepRunner::on_host(const TensorView& logits, const StepOutput& output) {
  Backend& backend = session_.backend();
  if (backend.reads_host_memory() || logits.rows() == 0) return logits;
  if (host_logits_.empty() || host_logits_.view().rows() < logits.rows()) {
    host_logits_ = make_host_tensor(DType::kF32, logits.shape);
  }
  const TensorView host = slice_rows(host_logits_.view(), 0, logits.rows());
  for (std::int64_t begin = 0; begin < logits.rows();) {
    std::int64_t end = begin;
    while (end < logits.rows() && !output.chose(end)) ++end;
    if (end > begin) {
      backend.download(slice_rows(host, begin, end - begin),
                       slice_rows(logits, begin, end - begin));
    }
    begin = end + 1;
  }
  return host;
}

void StepRunner::truncate(Sequence& sequence, std::int64_t tokens) {
  BL_CHECK(tokens <= sequence.cached);
  sequence.pages.truncate(tokens);
  sequence.cached = tokens;
  if (static_cast<std::int64_t>(sequence.ids.size()) > tokens) {
    sequence.ids.resize(static_cast<std::size_t>(tokens));
  }
}

}  // namespace bl
