#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>

#include "backend/cuda/cuda_ops.h"

namespace bl::cuda {

// Steps that were recorded as CUDA graphs, by key. A step is run plainly the first time its key
// comes (libraries set themselves up then), recorded the second time and repeated from then on:
// its body then runs with silent ops, only to refill the staging memory that the recorded copies
// read.
class StepRecorder {
 public:
  StepRecorder(cudaStream_t stream, const CudaOps& silent) : stream_(stream), silent_(silent) {}
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  using Body = std::function<void(ExecContext&)>;
  void run(std::uint64_t key, ExecContext& ctx, const Body& body);
  // Forgets all steps; none may be under way.
  void clear();
  // Whether a body is running that must not enqueue anything.
  bool silent() const { return silent_now_; }

 private:
  struct Entry {
    int runs = 0;
    cudaGraphExec_t graph = nullptr;
  };
  void record(Entry& entry, ExecContext& ctx, const Body& body);

  cudaStream_t stream_;
  CudaOps silent_;
  std::map<std::uint64_t, Entry> entries_;
  bool silent_now_ = false;
};

}  // namespace bl::cuda
