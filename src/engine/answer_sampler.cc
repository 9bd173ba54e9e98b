#include "engine/answer_sampler.h"

#include <algorithm>
#include <utility>

namespace bl {

AnswerSampler::AnswerSampler(Args args)
    : open_(args.open),
      choice_(args.choice),
      chain_(std::in_place, std::move(args.sampling),
             seed_of_answer(open_.request.sampling.seed, args.choice)),
      on_device_(device_sampleable(chain_->params()) && !open_.request.after_sampling),
      constraint_(std::move(args.constraint)) {
  healing_.prompt = open_.healed;
}

void AnswerSampler::let_model_choose(StepItem& item, std::int64_t prompt, std::int64_t generated) {
  const SamplingParams& sampling = params();
  // Answers of best_of are compared by their log-probabilities.
  const bool reports = sampling.logprobs || open_.keeps_best();
  if (!on_device_ || constraint_ || open_.request.return_logits ||
      generated < sampling.min_tokens || (reports && edits_logits(sampling))) {
    return;
  }
  item.sampling = &sampling;
  item.seed = chain_->seed();
  item.prompt = prompt;
  item.counts = &counts_;
  item.end_tokens = open_.end_tokens;
  item.log_probabilities = reports;
}

void AnswerSampler::change(std::shared_ptr<const SamplingParams> sampling) {
  const SamplerState state = chain_->state();
  const std::uint64_t seed = chain_->seed();
  chain_.emplace(std::move(sampling), seed);
  chain_->restore(state);
  on_device_ = false;
}

void AnswerSampler::fill(RowTask& task, std::span<const std::int32_t> end_tokens) {
  const SamplingParams& sampling = params();
  task.sampler = &*chain_;
  task.end_tokens = end_tokens;
  task.constraint = constraint_.get();
  if (healing_.active()) {
    task.mask = healing_.prompt->mask(healing_.done);
  } else if (open_.request.after_sampling) {
    task.hook = &open_.request.after_sampling;
    task.shows_candidates = open_.request.hook_candidates;
    task.choice = choice_;
  }
  if (sampling.logprobs) task.alternatives = static_cast<std::int32_t>(sampling.top_logprobs);
  if (open_.keeps_best()) task.alternatives = std::max(task.alternatives, 0);
  task.after_chain = sampling.logprobs_after;
}

void AnswerSampler::go_back(const HeldAnswer::Place& place) {
  chain_->restore(place.sampler);
  healing_ = place.healing;
}

void AnswerSampler::roll_constraint_back(std::int64_t generated) {
  if (constraint_) constraint_->rollback(constraint_->accepted() - generated);
}

}  // namespace bl
