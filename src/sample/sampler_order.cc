#include "sample/sampler_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "sample/stages/stage_order.h"

namespace bl {
namespace {

struct Orderable {
  const SamplerStage* stage;
  const char* off;  // the parameters and values that turn the stage off
};

constexpr std::array<Orderable, 12> kOrderable{{{&kSmoothingStage, "smoothing_factor: 0"},
                                                {&kTemperatureStage, "temperature: 1, max_temp: 0"},
                                                {&kTopKStage, "top_k: 0"},
                                                {&kTopPStage, "top_p: 1"},
                                                {&kTopAStage, "top_a: 0"},
                                                {&kMinPStage, "min_p: 0"},
                                                {&kTailFreeStage, "tfs: 1"},
                                                {&kTypicalStage, "typical: 1"},
                                                {&kMirostatStage, "mirostat_mode: 0"},
                                                {&kExcludeTopStage, "xtc_probability: 0"},
                                                {&kSkewStage, "skew: 0"},
                                                {&kAdaptiveStage, "adaptive_target: 1"}}};

const SamplerStage* stage_of(std::string_view name) {
  for (const Orderable& one : kOrderable) {
    if (one.stage->name == name) return one.stage;
  }
  return nullptr;
}

using Stages = std::vector<const SamplerStage*>;

Stages wanted_stages(const SamplingParams& params) {
  Stages stages;
  const auto add = [&](const SamplerStage& stage) {
    if (stage.wanted(params)) stages.push_back(&stage);
  };
  for (const std::string& name : params.sampler_order) add(*stage_of(name));
  if (!params.sampler_order.empty()) return stages;
  add(kSmoothingStage);
  if (!params.temperature_last && !params.dynamic_temperature()) add(kTemperatureStage);
  add(kTopKStage);
  for (const SamplerStage* stage : kCandidateStages) add(*stage);
  return stages;
}

// Takes stages off the front of a list while they come in the expected order.
class Front {
 public:
  explicit Front(const Stages& stages) : next_(stages.begin()), end_(stages.end()) {}
  bool take(const SamplerStage& stage) {
    const bool is_next = next_ != end_ && *next_ == &stage;
    next_ += is_next ? 1 : 0;
    return is_next;
  }
  Stages rest() const { return {next_, end_}; }

 private:
  Stages::const_iterator next_;
  Stages::const_iterator end_;
};

}  // namespace

StagePlan plan_stages(const SamplingParams& params) {
  const Stages wanted = wanted_stages(params);
  StagePlan plan;
  for (const SamplerStage* stage : wanted) plan.names.push_back(stage->name);
  Front front(wanted);
  GatherRules& gather = plan.gather;
  if (front.take(kSmoothingStage)) {
    gather.smoothing_factor = params.smoothing_factor;
    gather.smoothing_curve = params.smoothing_curve;
  }
  if (!params.dynamic_temperature() && front.take(kTemperatureStage)) {
    gather.temperature = params.temperature;
  }
  if (front.take(kTopKStage)) gather.top_k = params.top_k;
  plan.stages = front.rest();
  if (front.take(kTopPStage)) gather.top_p = params.top_p;
  if (front.take(kTopAStage)) gather.top_a = params.top_a;
  if (front.take(kMinPStage)) gather.min_p = params.min_p;
  return plan;
}

bool is_common_order(const SamplingParams& params) {
  if (params.dynamic_temperature()) return false;
  const Stages wanted = wanted_stages(params);
  Front front(wanted);
  for (const SamplerStage* stage : {&kTemperatureStage, &kTopKStage, &kTopPStage, &kMinPStage}) {
    front.take(*stage);
  }
  return front.rest().empty();
}

void check_sampler_order(const SamplingParams& params) {
  const std::vector<std::string>& order = params.sampler_order;
  if (order.empty()) return;
  for (auto name = order.begin(); name != order.end(); ++name) {
    const bool again = std::find(order.begin(), name, *name) != name;
    if (stage_of(*name) != nullptr && !again) continue;
    std::vector<std::string> known;
    for (const Orderable& one : kOrderable) known.emplace_back(one.stage->name);
    fail(ErrorCode::kInvalidArgument, "sampler_order has {}{}{} (it should list names from {})",
         json_text(Json(name->substr(0, 60))), again ? " twice" : "",
         again ? std::string() : did_you_mean(*name, known), fmt::join(known, ", "));
  }
  if (params.temperature_last) {
    fail(ErrorCode::kInvalidArgument,
         "temperature_last and sampler_order both say where temperature is applied: set only one "
         "of them");
  }
  for (const Orderable& one : kOrderable) {
    if (!one.stage->wanted(params)) continue;
    if (std::find(order.begin(), order.end(), one.stage->name) != order.end()) continue;
    fail(ErrorCode::kInvalidArgument,
         "sampler_order does not name {}, which is on: name it, or turn it off ({})",
         one.stage->name, one.off);
  }
}

}  // namespace bl
