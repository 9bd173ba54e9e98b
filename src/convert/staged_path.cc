#include "convert/staged_path.h"

namespace bl {

StagedPath::StagedPath(ModelPart& block, Products& products, const std::vector<Chunk>& chunks,
                       const std::vector<Tensor>& states,
                       const std::map<const PackedMatrix*, const PackedMatrix*>* substitutes)
    : block_(block),
      products_(products),
      chunks_(chunks),
      states_(states),
      substitutes_(substitutes),
      inputs_(chunks.size()),
      reached_(chunks.size(), -1),
      entries_(chunks.size()) {}

void StagedPath::advance(std::size_t chunk, const After& after) {
  CallInput& input = inputs_[chunk];
  const Tensor x = input.x.empty() ? Tensor() : products_.fetch(input.x);
  CallInput next;
  CallPlan plan;
  plan.resume = reached_[chunk];
  plan.input = &input;
  plan.x = x.view();
  plan.stop = plan.resume + 1;
  plan.substitutes = substitutes_;
  plan.before = [&](int at, const MatmulArgs& args) {
    if (at == plan.stop) next = CallInput(products_, args);
  };
  plan.before_experts = [&](int at, const ExpertsArgs& args) {
    if (at == plan.stop) next = CallInput(products_, args);
  };
  products_.update(states_[chunk], [&](const TensorView& stream) {
    if (block_.replays()) prepare_replay(chunk, stream, plan);
    if (after) plan.after = [&](int, const MatmulArgs& args) { after(args, stream); };
    block_.run_block(chunks_[chunk], stream, plan);
  });
  input = std::move(next);
  ++reached_[chunk];
}

// Keeps the stream of a first pass, from which the later ones start.
void StagedPath::prepare_replay(std::size_t chunk, const TensorView& stream, CallPlan& plan) {
  plan.replay = plan.resume >= 0;
  if (plan.replay) {
    products_.ops().copy(stream, entries_[chunk].view());
  } else {
    entries_[chunk] = products_.keep(stream);
  }
}

}  // namespace bl
