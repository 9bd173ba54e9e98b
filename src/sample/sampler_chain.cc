#include "sample/sampler_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fast_exp.h"
#include "sample/exp_sum.h"
#include "sample/philox.h"
#include "sample/stages/gather.h"
#include "sample/stages/stage_order.h"

namespace bl {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::shared_ptr<const SamplingParams> prepared(SamplingParams params) {
  prepare(params);
  return std::make_shared<const SamplingParams>(std::move(params));
}

// Sets row.top of edited logits. Throws kInvalidArgument if every token is barred.
void find_top(SampleRow& row) {
  const bool barred = std::all_of(row.logits.begin(), row.logits.end(),
                                  [](float logit) { return logit == kMinusInfinity; });
  if (barred) {
    fail(ErrorCode::kInvalidArgument,
         "no token is left to choose at position {}: all {} of the vocabulary are banned, not "
         "allowed or barred by the constraint",
         row.args->position, row.logits.size());
  }
  row.top = top_logit(row.logits);
}

}  // namespace

SamplerChain::SamplerChain(const SamplingParams& params)
    : SamplerChain(prepared(params), params.seed) {}

SamplerChain::SamplerChain(std::shared_ptr<const SamplingParams> params, std::uint64_t seed)
    : shared_(std::move(params)), params_(*shared_), seed_(seed), state_(params_) {
  for (const SamplerStage* stage : kLogitStages) {
    if (stage->wanted(params_)) logit_stages_.push_back(stage);
  }
  if (params_.greedy()) return;
  plan_ = plan_stages(params_);
  whole_row_ = plan_.stages.empty() && params_.top_k == 0 && params_.smoothing_factor == 0 &&
               params_.top_n_sigma == 0;
}

std::vector<std::string_view> SamplerChain::stage_names() const {
  std::vector<std::string_view> names;
  for (const SamplerStage* stage : logit_stages_) names.push_back(stage->name);
  if (params_.greedy()) names.push_back("greedy");
  names.insert(names.end(), plan_.names.begin(), plan_.names.end());
  return names;
}

SampleRow& SamplerChain::own_row() {
  if (own_row_ == nullptr) own_row_ = std::make_unique<SampleRow>();
  return *own_row_;
}

Pick SamplerChain::pick(const PickArgs& args, SampleRow& row) {
  edit_logits(args, row);
  if (params_.greedy()) return {row.top.id, 1.0};
  if (whole_row_) return draw_from_logits(row);
  make_candidates(row);
  const Pick pick = draw(row);
  learn(pick, row);
  return pick;
}

void SamplerChain::find_distribution(const PickArgs& args, SampleRow& row) const {
  edit_logits(args, row);
  if (params_.greedy()) return make_only_candidate(row);
  make_candidates(row);
}

void SamplerChain::recall_distribution(SampleRow& row) const {
  BL_CHECK(row.args != nullptr);
  if (params_.greedy()) return make_only_candidate(row);
  // Otherwise the draw has left its candidates in the row.
  if (whole_row_) make_candidates(row);
}

void SamplerChain::edit_logits(const PickArgs& args, SampleRow& row) const {
  BL_CHECK(!args.logits.empty());
  row.args = &args;
  row.seed = seed_;
  row.logits = args.logits;
  row.floor = kMinusInfinity;
  row.top = top_logit(args.logits);  // damaged logits are an error even if they are barred
  for (const SamplerStage* stage : logit_stages_) {
    stage->apply(params_, state_, row);
    if (stage == &kBarStage && row.logits.data() != args.logits.data()) find_top(row);
  }
}

void SamplerChain::make_candidates(SampleRow& row) const {
  gather(plan_.gather, row);
  for (const SamplerStage* stage : plan_.stages) stage->apply(params_, state_, row);
}

// For a greedy choice, the likeliest token is the only candidate.
void SamplerChain::make_only_candidate(SampleRow& row) {
  row.clear();
  row.push(row.top.id, 0.0f);
  row.weigh();
}

Pick SamplerChain::draw(const SampleRow& row) const {
  BL_CHECK(row.size() > 0);
  double total = 0;
  for (const float weight : row.weights) total += static_cast<double>(weight);
  const double target =
      uniform_at(seed_, row.args->position, DrawStream::kToken, row.args->rewinds) * total;
  double mass = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row.weights[i] == 0.0f) continue;
    last = i;
    mass += static_cast<double>(row.weights[i]);
    if (mass > target) break;
  }
  return {row.ids[last], static_cast<double>(row.weights[last]) / total};
}

// Draws from the softmax of the whole row without making candidates: first the masses of runs, then
// the run in which the target lies.
Pick SamplerChain::draw_from_logits(SampleRow& row) const {
  const std::span<const float> logits = row.logits;
  const ScoreMap score(plan_.gather, row);
  const ScoreFormula& formula = score.formula();
  const RowKernels& kernels = row_kernels();
  row.block_mass.clear();
  double total = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kRun) {
    const std::size_t count = std::min(kRun, logits.size() - begin);
    total += row.block_mass.emplace_back(kernels.exp_sum(logits.data() + begin, count, formula));
  }
  const double target =
      uniform_at(seed_, row.args->position, DrawStream::kToken, row.args->rewinds) * total;
  double mass = 0;
  std::size_t block = 0;
  while (block + 1 < row.block_mass.size() && mass + row.block_mass[block] <= target) {
    mass += row.block_mass[block++];
  }
  // Rounding may take the walk past the run's mass; then the last token with a weight is chosen.
  std::size_t last = static_cast<std::size_t>(row.top.id);
  float last_weight = 1;
  const std::size_t end = std::min((block + 1) * kRun, logits.size());
  for (std::size_t i = block * kRun; i < end; ++i) {
    const float weight = fast_exp(score(logits[i]));
    if (weight == 0.0f) continue;
    last = i;
    last_weight = weight;
    mass += static_cast<double>(weight);
    if (mass > target) break;
  }
  return {static_cast<std::int32_t>(last), static_cast<double>(last_weight) / total};
}

void SamplerChain::learn(const Pick& pick, const SampleRow& row) {
  if (params_.mirostat_mode == 2) {
    const double surprise = -std::log2(pick.probability);
    state_.mirostat_mu += params_.mirostat_eta * (params_.mirostat_tau - surprise);
  }
  if (params_.adaptive_target < 1) {
    // Learn from the probability before adaptive-p, not from the one that it made.
    const auto own = std::lower_bound(row.unaimed.begin(), row.unaimed.end(), pick.id,
                                      [](const auto& one, int id) { return one.first < id; });
    BL_CHECK(own != row.unaimed.end() && own->first == pick.id);
    state_.adaptive_sum = own->second + params_.adaptive_decay * state_.adaptive_sum;
    state_.adaptive_weight = 1 + params_.adaptive_decay * state_.adaptive_weight;
  }
}

}  // namespace bl
