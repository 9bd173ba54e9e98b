#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/model_session.h"

namespace bl {

// A token of a prompt is computed by other kernels than one that comes alone or with a few others.
// A check says how far apart the logits are that both give. It needs no file and no second model,
// so it can be asked of any shape.
struct StepCheck {
  std::int64_t tokens = 0;  // of a step
  double apart = 0;  // of the worst row: ‖logits − those compared with‖ ÷ ‖the latter‖
  std::int64_t position = 0;  // of that row
};

// Tokens of the one sequence that is computed; a session has room for them.
inline constexpr std::int64_t kCheckedTokens = 48;
// How far apart rounding may bring a row: activations in binary16 or in whole numbers, through all
// blocks. Two random blocks of 4 bits and more are 0.3 % apart at most, SmolLM2's thirty at 4 bits
// 0.7 %.
inline constexpr double kMostApart = 0.02;

// Steps of 1, 2, 3, … tokens, each compared with a prompt of all. Rows that are not finite are
// infinitely far apart.
std::vector<StepCheck> check_steps(ModelSession& session);
// The prompt, compared with what another backend makes of it.
StepCheck check_backends(ModelSession& session, ModelSession& other);

// The worst of some.
StepCheck furthest_apart(std::span<const StepCheck> checks);
Json step_checks_json(std::span<const StepCheck> checks);
std::string step_check_table(std::span<const StepCheck> checks);

}  // namespace bl
