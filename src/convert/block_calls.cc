#include "convert/block_calls.h"

namespace bl {

CallPlan collecting_plan(Products& products, const ModelPart& block,
                         std::vector<BlockCall>& calls) {
  const auto call_at = [&calls](int at) -> BlockCall& {
    const auto index = static_cast<std::size_t>(at);
    if (calls.size() <= index) calls.resize(index + 1);
    return calls[index];
  };
  CallPlan plan;
  plan.before = [=, &products, &block](int at, const MatmulArgs& args) {
    BlockCall& call = call_at(at);
    if (call.readers.empty()) call.readers = block.readers_of(args);
    if (!call.readers.empty()) call.inputs.add(products, args.x);
  };
  plan.before_experts = [=, &products](int at, const ExpertsArgs& args) {
    call_at(at).routed.emplace_back(products, args);
  };
  return plan;
}

}  // namespace bl
