#pragma once
#include "engine/choice.h"
#include "engine/step_model.h"
#include "sample/sampling_params.h"

namespace bl {

// Says by what a model may choose the tokens behind an answer's rows itself, where nothing that
// only the host knows has a say in it.
inline void let_model_choose(Choice& choice, StepItem& item) {
  const Request& request = choice.open->request;
  const SamplingParams& sampling = choice.sampler.params();
  // The best of several answers are found by their log-probabilities.
  const bool reports = sampling.logprobs || choice.open->held;
  if (!choice.device_sampled || choice.constraint || choice.wants_prompt_rows() ||
      request.return_logits || choice.generated() < sampling.min_tokens ||
      (reports && edits_logits(sampling))) {
    return;
  }
  item.sampling = &sampling;
  item.seed = choice.sampler.seed();
  item.counts = &choice.counts;
  item.log_probabilities = reports;
}

}  // namespace bl
