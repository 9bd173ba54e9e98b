#include "engine/batch_logits.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/state_room.h"
#include "engine/step_runner.h"

namespace bl {
namespace {

// The text and position that a row of a step is for.
struct RowPlace {
  std::size_t text = 0;
  std::int64_t position = 0;
};

// A forward pass over texts, step by step, with logits for all tokens.
class TextPass {
 public:
  // A step takes `most_tokens` tokens at most.
  TextPass(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
           std::int64_t most_tokens = std::numeric_limits<std::int64_t>::max())
      : runner_(session),
        adapters_(adapters),
        most_tokens_(std::min({most_tokens, session.step_tokens(), session.logit_rows()})) {
    for (const std::vector<std::int32_t>& ids : texts) {
      session.check_ids(ids);
      Sequence& sequence = sequences_.emplace_back(session.new_sequence());
      sequence.ids = ids;
      sequence.reach = static_cast<std::int64_t>(ids.size());
    }
  }

  // Computes the next step; false where nothing is left. Throws kCancelled on an interrupt.
  bool step(std::span<const StateRows> states = {}) {
    const std::vector<StepItem> items = next_items();
    if (items.empty()) return false;
    check_interrupt();
    places_.clear();
    for (const StepItem& item : items) {
      const auto text = static_cast<std::size_t>(item.sequence - sequences_.data());
      for (std::int64_t t = 0; t < item.count; ++t) {
        places_.push_back({text, item.sequence->cached + t});
      }
    }
    logits_ = runner_.run(items, states);
    return true;
  }
  std::span<const RowPlace> places() const { return places_; }  // for each row of the step
  const StepLogits& logits() const { return logits_; }

 private:
  std::vector<StepItem> next_items() {
    std::vector<StepItem> items;
    std::int64_t room = most_tokens_;
    for (Sequence& sequence : sequences_) {
      const std::int64_t left = static_cast<std::int64_t>(sequence.ids.size()) - sequence.cached;
      const std::int64_t count = std::min(left, room);
      if (count == 0) continue;
      items.push_back({.sequence = &sequence,
                       .count = count,
                       .logits = LogitRows::kAll,
                       .adapters = &adapters_});
      room -= count;
    }
    return items;
  }

  StepRunner runner_;
  const AdapterMix& adapters_;
  std::int64_t most_tokens_;
  std::vector<Sequence> sequences_;
  std::vector<RowPlace> places_;
  StepLogits logits_;
};

}  // namespace

void compute_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
                    const TakeRow& take, std::int64_t most_tokens) {
  TextPass pass(session, texts, adapters, most_tokens);
  while (pass.step()) {
    std::int64_t row = 0;
    for (const RowPlace& place : pass.places()) {
      take(place.text, place.position, pass.logits().row(row++));
    }
  }
}

void compute_states(ModelSession& session, const StateTexts& wanted, const AdapterMix& adapters,
                    const TakeState& take) {
  StateRoom room(session, wanted.states);
  TextPass pass(session, wanted.texts, adapters);
  while (pass.step(room.rows())) {
    const std::span<const RowPlace> places = pass.places();
    for (const StateRows& rows : room.rows()) {
      const TensorView states = room.fetch(rows, std::ssize(places));
      for (std::int64_t i = 0; i < std::ssize(places); ++i) {
        const RowPlace& place = places[static_cast<std::size_t>(i)];
        const std::span row(states.row<const float>(i), static_cast<std::size_t>(states.columns()));
        take(place.text, place.position, rows.blocks, row);
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
