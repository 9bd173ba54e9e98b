#pragma once
#include "format/shard.h"
#include "model/load_plan.h"
#include "model/model_spec.h"
#include "ops/backend.h"

namespace bl {

// How the linear of a role is cut for devices that share a model: kSplitOut what reads the residual
// stream (queries, keys, values, gate and up, also of experts) and the head; kSplitIn what writes
// it (o and down), so that one sum over the devices ends each layer; kReplicate what is small
// (routers and gates of attention or of a shared expert).
ShardRule shard_rule(Role role);

// Turns the plan of a whole model into that of one share of it: each linear keeps its part, with
// what that takes of memory, and everything else is there in each share.
//
// Gate and up of a feed-forward compute exactly the channels that its down reads in the same share,
// whatever order an EXL2 down stores them in. Fused matrices are cut part by part. Heads are not
// kept together: an EXL2 o_proj that is sorted by importance mixes them, so the inputs of o are
// those that input_share() gives. Biases of o and down are in share 0 alone. Adapters find no sites
// in a share.
//
// Throws kUnsupported, naming the linear, where it has fewer parts than there are shares.
void cut_plan(LoadPlan& plan, Backend& backend, const ModelSpec& spec, Share share);

}  // namespace bl
