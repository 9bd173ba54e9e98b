#include "engine/batch_logits.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/step_runner.h"

namespace bl {
namespace {

std::vector<StepItem> next_items(const ModelSession& session, const AdapterMix& adapters,
                                 std::vector<Sequence>& sequences) {
  std::vector<StepItem> items;
  std::int64_t room = std::min(session.step_tokens(), session.logit_rows());
  for (Sequence& sequence : sequences) {
    const std::int64_t left = static_cast<std::int64_t>(sequence.ids.size()) - sequence.cached;
    const std::int64_t count = std::min(left, room);
    if (count == 0) continue;
    items.push_back(
        {.sequence = &sequence, .count = count, .logits = LogitRows::kAll, .adapters = &adapters});
    room -= count;
  }
  return items;
}

}  // namespace

void compute_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
                    const TakeRow& take) {
  StepRunner runner(session);
  std::vector<Sequence> sequences;
  for (const std::vector<std::int32_t>& ids : texts) {
    session.check_ids(ids);
    Sequence& sequence = sequences.emplace_back(session.new_sequence());
    sequence.ids = ids;
    sequence.reach = static_cast<std::int64_t>(ids.size());
  }
  while (true) {
    const std::vector<StepItem> items = next_items(session, adapters, sequences);
    if (items.empty()) return;
    check_interrupt();
    std::vector<std::int64_t> firsts;
    for (const StepItem& item : items) firsts.push_back(item.sequence->cached);
    const StepLogits logits = runner.run(items);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto text = static_cast<std::size_t>(items[i].sequence - sequences.data());
      for (std::int64_t t = 0; t < items[i].count; ++t) {
        take(text, firsts[i] + t, logits.row(row++));
      }
    }
  }
}

PaddedLogits padded_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters) {
  PaddedLogits out;
  std::int64_t longest = 0;
  for (const std::vector<std::int32_t>& ids : texts) {
    out.lengths.push_back(static_cast<std::int64_t>(ids.size()));
    longest = std::max(longest, out.lengths.back());
  }
  if (longest == 0) fail(ErrorCode::kInvalidArgument, "there is no token to compute logits of");
  const auto batch = static_cast<std::int64_t>(texts.size());
  out.logits = make_host_tensor(DType::kF32, {batch, longest, session.vocab()});
  const TensorView view = out.logits.view();
  float* const data = view.as<float>();
  std::fill_n(data, view.shape.elements(), 0.0f);
  compute_logits(session, texts, adapters,
                 [&](std::size_t text, std::int64_t position, std::span<const float> row) {
                   const std::int64_t at =
                       (static_cast<std::int64_t>(text) * longest + position) * session.vocab();
                   std::memcpy(data + at, row.data(), row.size_bytes());
                 });
  return out;
}

}  // namespace bl
