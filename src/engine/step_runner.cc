#include "engine/step_runner.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "model/step_batch.h"

namespace bl {
namespace {

void add_item(const StepItem& item, StepBatch& batch) {
  Sequence& sequence = *item.sequence;
  const std::int64_t begin = sequence.cached;
  const std::int64_t end = begin + item.count;
  BL_CHECK(item.count > 0 && end <= static_cast<std::int64_t>(sequence.ids.size()));
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
    batch.ids.push_back(sequence.ids[static_cast<std::size_t>(position)]);
    batch.positions.push_back(static_cast<std::int32_t>(position));
    batch.slots.push_back(sequence.pages.slot(position));
  }
  batch.sequences.push_back(std::move(entry));
}

// What the step may be recorded under: its launches depend on nothing else.
std::uint64_t record_key(const Backend& backend, const StepBatch& batch, std::uint64_t choice) {
  std::vector<SequenceSpan> spans;
  for (const BatchSequence& s : batch.sequences) {
    if (s.adapters != nullptr && !s.adapters->empty()) return 0;  // as many launches as adapters
    spans.push_back({s.first_token, s.tokens, s.past, s.pages.data()});
  }
  const std::uint64_t key = backend.step_key(spans);
  if (key == 0) return 0;
  std::uint64_t hash = key;
  for (const std::uint64_t part :
       {std::uint64_t{batch.ids.size()}, std::uint64_t{batch.logit_rows.size()}, choice}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash | 1u;
}

}  // namespace

StepLogits StepRunner::run(std::span<const StepItem> items) { return compute(items, false).logits; }

StepOutput StepRunner::choose(std::span<const StepItem> items) { return compute(items, true); }

StepOutput StepRunner::compute(std::span<const StepItem> items, bool chooses) {
  StepBatch batch;
  const std::span<const StepItem> chosen = chooses ? items : std::span<const StepItem>();
  rows_.collect(chosen, session_.backend().ops(), session_.vocab());
  for (const StepItem& item : items) add_item(item, batch);
  BL_CHECK(static_cast<std::int64_t>(batch.ids.size()) <= session_.step_tokens());
  BL_CHECK(static_cast<std::int64_t>(batch.logit_rows.size()) <= session_.logit_rows());
  ExecContext context = session_.begin_step();
  Backend& backend = session_.backend();
  TensorView logits;
  backend.run_step(record_key(backend, batch, rows_.key()), context, [&](ExecContext& ctx) {
    logits = session_.model().forward(ctx, batch, session_.cache().layers());
    if (rows_.any()) rows_.enqueue(ctx, backend, logits);
  });
  for (const StepItem& item : items) item.sequence->cached += item.count;
  StepOutput output;
  if (rows_.any()) rows_.read(backend, output);
  const bool all_chosen =
      rows_.any() && std::find(output.ids.begin(), output.ids.end(), -1) == output.ids.end();
  if (!all_chosen) output.logits = on_host(logits, output);
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
