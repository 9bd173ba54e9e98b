#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/model_session.h"

namespace bl {

// Other kernels compute a token of a prompt than compute it when it comes alone or with a few: how
// far apart what they say is. Needs no file, no second backend and no second model, so it can be
// asked of any shape.
struct StepCheck {
  std::int64_t tokens = 0;  // of a step
  double apart = 0;         // of the worst row: ‖logits − those of the prompt‖ ÷ ‖those‖
  std::int64_t position = 0;  // of that row
};

// Tokens of the one sequence that check_steps() computes; the session has room for them.
inline constexpr std::int64_t kCheckedTokens = 48;
// What rounding may make of a row: activations in binary16 or in whole numbers, through all blocks.
// Two random blocks of 4 bits and more are 0.3 % apart at most, SmolLM2's thirty at 4 bits 0.7 %.
inline constexpr double kMostApart = 0.02;

// 1, 2, 3, … tokens a step, each beside all in one. Rows that are not finite are infinitely far
// apart.
std::vector<StepCheck> check_steps(ModelSession& session);

// The worst of them.
StepCheck furthest_apart(std::span<const StepCheck> checks);
Json step_checks_json(std::span<const StepCheck> checks);
std::string step_check_table(std::span<const StepCheck> checks);

}  // namespace bl
