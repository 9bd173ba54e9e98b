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

// Of one choice of the backend (Backend::launch_choices): what was measured, and what is best.
struct TunedChoice {
  LaunchChoice was;
  std::int64_t best = 0;
  std::vector<WayTimes> times;
};

// Sequences that tuning needs at once: as many as the largest step that may go either way.
std::int64_t tuning_sequences(const Backend& backend);
// Measures every choice, one after the other, each with those before it as they were found best.
// Steps of one token a sequence. The session has tuning_sequences().
std::vector<TunedChoice> tune_launches(ModelSession& session, std::int64_t repetitions);

// The members of a plan, as the backend's shipped files have them.
Json launch_plan_json(std::span<const TunedChoice> choices);
std::string tuning_table(std::span<const TunedChoice> choices);

}  // namespace bl
