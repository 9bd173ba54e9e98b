#pragma once
#include <functional>
#include <span>
#include <string>

#include "base/json_fwd.h"
#include "engine/model_session.h"
#include "ops/op_profile.h"

namespace bl {

// Where the time of one test of `bench` went: `seconds` as a whole, `ops` within it.
struct StepProfile {
  std::string test;  // such as "pp512"
  OpProfile ops;
  double seconds = 0;
};

// Runs `prepare`, then times every op that `run` makes the session's steps compute. Ops run one by
// one meanwhile: a backend that records whole steps or overlaps ops is slower than otherwise.
StepProfile profile_steps(ModelSession& session, const std::string& test,
                          const std::function<void()>& prepare, const std::function<void()>& run);

// Returns a table for each test, for people.
std::string profile_tables(std::span<const StepProfile> profiles);
// Returns a list of {test, seconds, ops: [{op, tokens, in, out, keys, calls, seconds}]}, longest op
// first.
Json profiles_json(std::span<const StepProfile> profiles);

}  // namespace bl
