#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "backend/cuda/device/step_keys.h"
#include "ops/op_table.h"

namespace bl::cuda {

// Steps that were recorded as CUDA graphs, by key. A step runs plainly when its key comes for the
// first time, since libraries set themselves up then; it is recorded the second time, and its graph
// is replayed from then on. When a graph is replayed the step's body still runs, with ops that do
// nothing, to refill the staging memory that the recorded copies read. StepKeys decides how many
// graphs are kept, and which.
class StepRecorder {
 public:
  StepRecorder(cudaStream_t stream, const OpTable& replay_ops)
      : stream_(stream), replay_ops_(replay_ops) {}
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  using Body = std::function<void(ExecContext&)>;
  // At most one earlier step may still be in flight.
  void run(std::uint64_t key, ExecContext& ctx, const Body& body);
  // Forgets all steps. None may be in flight.
  void clear();
  // Whether a body is running for its uploads alone, and must not enqueue anything.
  bool replaying() const { return replaying_; }

 private:
  struct Destroy {
    using pointer = cudaGraphExec_t;
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  Graph record(ExecContext& ctx, const Body& body);
  void refill(ExecContext& ctx, const Body& body);

  cudaStream_t stream_;
  OpTable replay_ops_;
  StepKeys keys_;
  std::map<std::uint64_t, Graph> graphs_;
  bool replaying_ = false;
};

}  // namespace bl::cuda
