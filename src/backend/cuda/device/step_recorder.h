#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device/step_keys.h"

namespace bl::cuda {

// Steps that were recorded as CUDA graphs, by key. A step is run plainly the first time its key
// comes (libraries set themselves up then), recorded the second time and repeated from then on:
// its body then runs with silent ops, only to refill the staging memory that the recorded copies
// read. How many are kept, and which: StepKeys.
class StepRecorder {
 public:
  StepRecorder(cudaStream_t stream, const CudaOps& silent) : stream_(stream), silent_(silent) {}
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  using Body = std::function<void(ExecContext&)>;
  // Of the steps before it, whoever runs one has waited for all but the last one.
  void run(std::uint64_t key, ExecContext& ctx, const Body& body);
  // Forgets all steps; none may be under way.
  void clear();
  // Whether a body is running that must not enqueue anything.
  bool silent() const { return silent_now_; }

 private:
  struct Destroy {
    using pointer = cudaGraphExec_t;
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  Graph record(ExecContext& ctx, const Body& body);
  void repeat(ExecContext& ctx, const Body& body);

  cudaStream_t stream_;
  CudaOps silent_;
  StepKeys keys_;
  std::map<std::uint64_t, Graph> graphs_;
  bool silent_now_ = false;
};

}  // namespace bl::cuda
