#pragma once
#include <functional>
#include <span>

#include "convert/block_model.h"
#include "convert/ordered_hessian.h"

namespace bl {

struct ExpertPassArgs {
  const ModelPart& block;
  Products& products;
  std::span<const CallInput> inputs;  // of one layer of routed experts, per chunk
  double damping = 0.01;
  // The order of the slots of an input with so many channels.
  std::function<SlotOrder(std::int64_t in)> slot_order = [](std::int64_t) { return SlotOrder{}; };
};

// Receives a linear of an expert and the Hessian of its input, and returns the matrix that the
// inputs of later linears of that expert are computed with.
using RoundExpert =
    std::function<const PackedMatrix*(const LinearSite& linear, const OrderedHessian& hessian)>;

// Calls `round` for each linear that conversion quantizes of each expert of a layer, in the order
// of experts; `down` comes after those that make its input. A row of an expert's Hessian counts
// with the square of the weight that routing gave it, as its error does in the output, and the
// Hessian's sum is divided by all tokens, so that losses are per token of the model. An expert that
// hardly any token has chosen also gets other tokens, with little weight: otherwise nothing would
// be known of its inputs. Returns how many experts no token has chosen.
int for_each_expert(const ExpertPassArgs& args, const RoundExpert& round);

// Warns of experts that no token has chosen, if there are any, and says what helps.
void warn_of_unreached(int experts);

}  // namespace bl
