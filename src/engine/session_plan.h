#pragma once
// What a session will take, and what it should be where that is not there: values, made before
// anything is loaded. `inspect` says them, ModelSession::load keeps them.

#include <cstdint>
#include <string>

#include "engine/model_session.h"
#include "model/model_loader.h"

namespace bl {

struct SessionPlan {
  CacheTypes cache{};
  std::int64_t context = 0;      // of the longest sequence
  std::int64_t step_tokens = 0;  // of a step
  std::int64_t logit_rows = 0;
  std::int32_t pages = 0;
  bool embed_host = false;
  MemoryPlan memory;
  std::uint64_t available = 0;
  bool fits() const { return memory.needed() <= available; }
};

// What planning looks at.
struct PlanInput {
  const SessionOptions& options;
  const ModelLoader& loader;
  const Backend& backend;
  std::uint64_t available = 0;  // bytes of the memory that it is for
};

// Where the options leave the context open, the longest that fits. On a device that is short of
// memory steps are shorter than they would be. Throws kInvalidArgument for numbers that make no
// sense and for options that contradict the model.
SessionPlan plan_session(const PlanInput& input);

// The longest context, of every sequence alike, that would fit with this type of cache; 0: none.
// Throws kInvalidArgument for numbers that make no sense.
std::int64_t longest_fitting(const PlanInput& input, CacheTypes cache);

// What would fit in place of a plan that does not, in words: "--ctx 8192, or --cache q4 with --ctx
// 30464"; empty where nothing does.
std::string what_would_fit(const PlanInput& input, const SessionPlan& plan);

// Throws kOutOfMemory, naming `model`, with the plan and what would fit.
void check_fits(const PlanInput& input, const SessionPlan& plan, const std::string& model);

}  // namespace bl
