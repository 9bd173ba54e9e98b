#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/model_session.h"
#include "ops/backend.h"
#include "ops/launch_choice.h"

namespace bl {

// The measurements of one of the backend's launch choices (Backend::launch_choices), and the best
// setting.
struct TunedChoice {
  LaunchChoice was;
  std::int64_t best = 0;
  std::vector<WayTimes> times;
};

// Number of sequences that tuning needs: the size of the largest step for which there is a choice.
std::int64_t tuning_sequences(const Backend& backend);
// Measures every choice in turn, with the earlier ones at their best settings, in steps of one
// token per sequence. The session must have tuning_sequences().
std::vector<TunedChoice> tune_launches(ModelSession& session, std::int64_t repetitions);

// The members of a launch plan, in the form of the backend's built-in plan files.
Json launch_plan_json(std::span<const TunedChoice> choices);
std::string tuning_table(std::span<const TunedChoice> choices);

}  // namespace bl
