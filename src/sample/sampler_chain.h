#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sample/pick_args.h"
#include "sample/sample_row.h"
#include "sample/sampler_order.h"
#include "sample/sampling_params.h"
#include "sample/stages/stage.h"

namespace bl {

// Chooses the tokens of one request from logits in host memory: edits of logits → temperature and
// top-k → truncations → last temperature → reweighing → draw (README.md lists all stages), or what
// lies between the edits and the draw in an order of the request's own.
//
// Goals: a choice is a function of parameters, state, seed, position, logits, history and what bars
// tokens; not of the batch, the thread or how often it was asked for. So a draft's token is
// accepted exactly when the target's own choice equals it, and text is the same with and without a
// draft. Allocates nothing once buffers have grown. Non-goal: thread safety; a chain and the row
// that it shares belong to one thread at a time.
class SamplerChain {
 public:
  // `params` have been validated.
  explicit SamplerChain(const SamplingParams& params);
  // The same for parameters that several chains share, after prepare(), and a seed in place of
  // theirs.
  SamplerChain(std::shared_ptr<const SamplingParams> params, std::uint64_t seed);

  // Works in `row`, which chains that run one after another may share: it has room for a few copies
  // of the vocabulary. Moves the state. Throws kInvalidFile as top_logit() does, kInvalidArgument
  // when everything is barred.
  Pick pick(const PickArgs& args, SampleRow& row);
  // In a row of the chain's own.
  Pick pick(const PickArgs& args) { return pick(args, own_row()); }
  std::int32_t pick(std::span<const float> logits, std::span<const std::int32_t> history,
                    std::uint64_t position) {
    return pick({.logits = logits, .history = history, .position = position}).id;
  }

  // The final distribution that pick() would draw from, as the candidates of `row`. Greedy: one
  // candidate. Does not move the state.
  void find_distribution(const PickArgs& args, SampleRow& row) const;
  // The distribution that pick() has just drawn from, as the candidates of `row`, which it worked
  // in and whose PickArgs are still there. Costs next to nothing where the draw was from
  // candidates.
  void recall_distribution(SampleRow& row) const;

  const SamplingParams& params() const { return params_; }
  std::uint64_t seed() const { return seed_; }
  const SamplerState& state() const { return state_; }
  void restore(const SamplerState& state) { state_ = state; }

  // Names of the stages that these parameters make run, in order.
  std::vector<std::string_view> stage_names() const;

 private:
  SampleRow& own_row();
  void edit_logits(const PickArgs& args, SampleRow& row) const;
  void make_candidates(SampleRow& row) const;
  static void make_only_candidate(SampleRow& row);
  Pick draw(const SampleRow& row) const;
  Pick draw_from_logits(SampleRow& row) const;
  void learn(const Pick& pick, const SampleRow& row);

  std::shared_ptr<const SamplingParams> shared_;
  const SamplingParams& params_;
  std::uint64_t seed_;
  SamplerState state_;
  std::unique_ptr<SampleRow> own_row_;
  std::vector<const SamplerStage*> logit_stages_;
  StagePlan plan_;          // none where the choice is greedy
  bool whole_row_ = false;  // the draw is from the softmax of the row as it is
};

}  // namespace bl
