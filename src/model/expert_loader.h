#pragma once
#include <string>

#include "model/arch_spec.h"
#include "model/weight_reader.h"
#include "nn/feed_forward.h"
#include "nn/moe.h"

namespace bl {

struct ExpertLoadArgs {
  const MoeSpec& spec;
  const MoeArch& arch;
};

// The routed experts below `at`: one linear each, or stacked tensors cut into them.
void load_experts(WeightReader& reader, const std::string& at, const ExpertLoadArgs& args,
                  Moe::Weights& weights);

// An ordinary (or shared) feed-forward layer below `at`.
FeedForward load_feed_forward(WeightReader& reader, const std::string& at,
                              const FeedForwardSpec& spec, const FeedForwardArch& arch);

}  // namespace bl
