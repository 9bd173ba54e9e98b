#include "model/kept_step.h"

#include <algorithm>

#include "base/check.h"
#include "model/batch_inputs.h"

namespace bl {
namespace {

// A sequence with this many new tokens is reading a prompt. The bound is far above the lengths
// whose steps a backend records (Backend::step_key), so recorded launches do not change.
constexpr std::int32_t kPromptTokens = 64;

// Consecutive wanted rows of one sequence.
struct Run {
  const BatchSequence* sequence = nullptr;
  std::int32_t first = 0;  // its first row of the batch
  std::int32_t tokens = 0;
};

std::vector<Run> runs_of(const StepBatch& batch) {
  std::vector<Run> runs;
  auto wanted = batch.logit_rows.begin();
  for (const BatchSequence& s : batch.sequences) {
    bool follows = false;
    for (; wanted != batch.logit_rows.end() && *wanted < s.first_token + s.tokens; ++wanted) {
      if (follows && runs.back().first + runs.back().tokens == *wanted) {
        ++runs.back().tokens;
      } else {
        runs.push_back({&s, *wanted, 1});
      }
      follows = true;
    }
  }
  return runs;
}

}  // namespace

bool KeptStep::pays(const StepBatch& batch) {
  const bool is_prompt =
      std::any_of(batch.sequences.begin(), batch.sequences.end(),
                  [](const BatchSequence& s) { return s.tokens >= kPromptTokens; });
  // Every run needs a span of its own, and there is room for one per sequence.
  return is_prompt && !batch.logit_rows.empty() && runs_of(batch).size() <= batch.sequences.size();
}

KeptStep::KeptStep(ExecContext& ctx, Backend& backend, const RopeBank& ropes,
                   const StepBatch& batch, const StepInputs& step) {
  std::vector<std::int32_t> positions;
  for (const std::int32_t row : batch.logit_rows) {
    positions.push_back(batch.positions[static_cast<std::size_t>(row)]);
  }
  std::vector<RopeBank::Sequence> rotations;
  std::int32_t rows = 0;
  for (const Run& run : runs_of(batch)) {
    const BatchSequence& s = *run.sequence;
    const std::int32_t past = s.past + run.first - s.first_token;
    spans_.push_back({rows, run.tokens, past, s.pages.data()});
    rotations.push_back({run.tokens, past, s.reach});
    rows += run.tokens;
  }
  BL_CHECK(rows == static_cast<std::int32_t>(batch.logit_rows.size()));
  inputs_.tokens = rows;
  inputs_.positions = upload_ints(ctx, backend, positions);
  inputs_.sequences = spans_;
  ropes_ = ropes.prepare(ctx, rotations);
  inputs_.ropes = ropes_;
  inputs_.attention = backend.plan_attention(ctx, spans_);
  inputs_.kv = step.kv;
  inputs_.keys_written = true;
}

std::size_t KeptStep::work_bytes(std::span<const RopeSpec> ropes, std::int64_t rows) {
  std::size_t bytes = arena_bytes(DType::kI32, rows);
  for (const RopeSpec& rope : ropes) bytes += RopeBank::work_bytes(rope, rows);
  return bytes;
}

}  // namespace bl
