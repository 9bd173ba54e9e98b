#include "model/batch_inputs.h"

#include <algorithm>

#include "nn/device_copy.h"

namespace bl {

const std::int32_t* upload_ints(ExecContext& ctx, Backend& backend,
                                const std::vector<std::int32_t>& values) {
  return scratch_copy(ctx, backend, std::span<const std::int32_t>(values),
                      Shape{std::ssize(values)})
      .as<const std::int32_t>();
}

BatchInputs::BatchInputs(ExecContext& ctx, Backend& backend, const RopeBank& ropes,
                         const StepBatch& batch) {
  std::vector<RopeBank::Sequence> rotations;
  for (const BatchSequence& s : batch.sequences) {
    spans_.push_back({s.first_token, s.tokens, s.past, s.pages.data()});
    rotations.push_back({s.tokens, s.past, s.reach});
  }
  step_.tokens = std::ssize(batch.positions);
  step_.positions = upload_ints(ctx, backend, batch.positions);
  step_.slots =
      scratch_copy(ctx, backend, std::span<const std::int64_t>(batch.slots), Shape{step_.tokens})
          .as<const std::int64_t>();
  step_.sequences = spans_;
  ropes_ = ropes.prepare(ctx, rotations);
  step_.ropes = ropes_;
}

BatchAdapters::BatchAdapters(const StepBatch& batch) {
  if (std::none_of(batch.sequences.begin(), batch.sequences.end(),
                   [](const BatchSequence& s) { return s.adapters != nullptr; })) {
    return;
  }
  auto wanted = batch.logit_rows.begin();
  for (const BatchSequence& s : batch.sequences) {
    tokens_.append(s.adapters, s.tokens);
    const auto end = std::find_if(wanted, batch.logit_rows.end(), [&](std::int32_t row) {
      return row >= s.first_token + s.tokens;
    });
    logits_.append(s.adapters, end - wanted);
    wanted = end;
  }
}

}  // namespace bl
