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

// Chooses the tokens of one request from logits in host memory: edits of logits, temperature and
// top-k, truncations, last temperature, reweighing, draw (README.md lists all stages). The request
// may put the stages between the edits and the draw in an order of its own.
//
// Goals: a choice is a function of parameters, state, seed, position, logits, history and barred
// tokens, and not of the batch, the thread or how often it is made. Therefore a drafted token is
// accepted exactly when the target model would have chosen it, and speculative decoding does not
// change the text. Nothing is allocated once buffers have grown. Non-goal: thread safety; a chain
// and the row that it uses belong to one thread at a time.
class SamplerChain {
 public:
  // `params` must have passed validate().
  explicit SamplerChain(const SamplingParams& params);
  // Shares parameters that have passed validate() and prepare() with other chains; `seed` replaces
  // theirs.
  SamplerChain(std::shared_ptr<const SamplingParams> params, std::uint64_t seed);

  // Chooses a token, and updates the state. `row` is working memory, a few copies of the
  // vocabulary, which chains that run one after another may share. Throws kInvalidFile as
  // top_logit() does, and kInvalidArgument if every token is barred.
  Pick pick(const PickArgs& args, SampleRow& row);
  // Uses a row that the chain owns.
  Pick pick(const PickArgs& args) { return pick(args, own_row()); }
  std::int32_t pick(std::span<const float> logits, std::span<const std::int32_t> history,
                    std::uint64_t position) {
    return pick({.logits = logits, .history = history, .position = position}).id;
  }

  // Leaves the distribution that pick() would draw from as the candidates of `row`; a greedy choice
  // has one candidate. Does not change the state.
  void find_distribution(const PickArgs& args, SampleRow& row) const;
  // Leaves the distribution that the last pick() drew from as the candidates of `row`. `row` must
  // be the one that pick() used, and its PickArgs must still be alive. Almost free unless pick()
  // drew from the whole row.
  void recall_distribution(SampleRow& row) const;

  const SamplingParams& params() const { return params_; }
  std::uint64_t seed() const { return seed_; }
  const SamplerState& state() const { return state_; }
  void restore(const SamplerState& state) { state_ = state; }

  // Names of the stages that run with these parameters, in order.
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
  StagePlan plan_;          // empty for a greedy choice
  bool whole_row_ = false;  // the draw is from the softmax of the whole row
};

}  // namespace bl
