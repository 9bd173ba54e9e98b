#pragma once
#include <cstddef>
#include <vector>

#include "format/tensor_source.h"
#include "model/load_plan.h"
#include "model/model.h"
#include "model/model_spec.h"
#include "nn/block.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/backend.h"

namespace bl {

// What the tasks of one block make, before it becomes layers.
struct LoadedBlock {
  Norm attention_norm, attention_post_norm, feed_forward_norm, feed_forward_post_norm;
  Norm dense_post_norm, moe_norm, moe_post_norm;
  Attention::Weights attention;
  FeedForward::Weights feed_forward, shared_expert;
  Moe::Weights moe;
  float output_scale = 1.0f;
};

// What the tasks of a plan make. Each result has a place of its own, so tasks may come in any
// order.
struct LoadedWeights {
  HostArray embedding, positions;
  Norm embed_norm, final_norm;
  Linear head;
  // Side layers have these (DraftHead::Parts).
  Linear combine;
  Norm draft_norm, draft_embed_norm;
  std::vector<Norm> state_norms;
  std::vector<LoadedBlock> blocks;  // of the whole model; those without tasks stay empty

  // The place of a target; a bug where its role is of another kind.
  Linear& linear(const LoadTarget& target);
  Norm& norm(const LoadTarget& target);
  Tensor& vector(const LoadTarget& target);
  HostArray& table(const LoadTarget& target);
  float& scalar(const LoadTarget& target);

 private:
  LoadedBlock& block(const LoadTarget& target) {
    return blocks.at(static_cast<std::size_t>(target.block));
  }
  FeedForward::Weights& feed_forward(const LoadTarget& target);
  Linear& expert_linear(const LoadTarget& target);
};

// The layers of block `layer`, all of whose tasks have run. The backend makes what it needs of the
// block's experts (Backend::pack_experts).
Block make_block(Backend& backend, const ModelSpec& model, std::size_t layer, LoadedBlock loaded);

// The parts of a model that the tasks of a range make, all of which have run. Blocks outside the
// range, and those that do not run, are empty.
Model::Parts make_parts(Backend& backend, const ModelSpec& model, const LoadPlan& plan,
                        const LoadRange& range, LoadedWeights loaded);

}  // namespace bl
