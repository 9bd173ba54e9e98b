#pragma once
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "convert/block_model.h"

namespace bl {

// Takes chunks through a block from one call to the next.
class StagedPath {
 public:
  // Hears a call that was computed, and the residual stream that it may have added to.
  using After = std::function<void(const MatmulArgs&, const TensorView& stream)>;

  // `states`: of each chunk, from Products::keep(); calls change them. `substitutes`: as in
  // CallPlan, or null. All must outlive this.
  StagedPath(ModelPart& block, Products& products, const std::vector<Chunk>& chunks,
             const std::vector<Tensor>& states,
             const std::map<const PackedMatrix*, const PackedMatrix*>* substitutes = nullptr);

  // The inputs of the next call, per chunk; without x behind the last call.
  std::span<const CallInput> inputs() const { return inputs_; }
  // Runs a chunk from the call that it has reached up to the next one; at first from the beginning.
  void advance(std::size_t chunk, const After& after = {});

 private:
  void prepare_replay(std::size_t chunk, const TensorView& stream, CallPlan& plan);

  ModelPart& block_;
  Products& products_;
  const std::vector<Chunk>& chunks_;
  const std::vector<Tensor>& states_;
  const std::map<const PackedMatrix*, const PackedMatrix*>* substitutes_;
  std::vector<CallInput> inputs_;
  std::vector<int> reached_;     // the call that each chunk goes on with; −1: at the beginning
  std::vector<Tensor> entries_;  // the states that enter the block, where passes are replayed
};

}  // namespace bl
