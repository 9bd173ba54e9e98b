#pragma once
// Plans a session's memory, and says what would fit where that is too much. Plans are values, made
// before anything is loaded; `inspect` prints them, ModelSession::load keeps to them.

#include <cstdint>
#include <string>

#include "engine/model_session.h"
#include "model/model_loader.h"

namespace bl {

struct SessionPlan {
  CacheTypes cache{};
  std::int64_t context = 0;      // tokens of the longest sequence
  std::int64_t step_tokens = 0;  // tokens per step
  std::int64_t logit_rows = 0;   // rows of logits per step
  std::int32_t pages = 0;        // of the cache
  bool embed_host = false;
  MemoryPlan memory;
  std::uint64_t available = 0;  // bytes
  bool fits() const { return memory.needed() <= available; }
};

// What a plan depends on.
struct PlanInput {
  const SessionOptions& options;
  const ModelLoader& loader;
  const Backend& backend;
  std::uint64_t available = 0;  // bytes of the device's memory, or of the host's for a host backend
};

// Plans the longest context that fits where the options leave it open, and shorter steps on a
// device that is short of memory. The plan may still not fit. Throws kInvalidArgument for numbers
// out of range and for options that contradict the model.
SessionPlan plan_session(const PlanInput& input);

// The longest context, the same for every sequence, that would fit with this type of cache; 0:
// none. Throws kInvalidArgument for numbers out of range.
std::int64_t longest_fitting(const PlanInput& input, CacheTypes cache);

// Says what would fit in place of a plan that does not: "--ctx 8192, or --cache q4 with --ctx
// 30464". Empty where nothing fits.
std::string what_would_fit(const PlanInput& input, const SessionPlan& plan);

// Throws kOutOfMemory where the plan does not fit; the message has the plan and what would fit.
// `model`: its name there.
void check_fits(const PlanInput& input, const SessionPlan& plan, const std::string& model);

}  // namespace bl
