#pragma once
#include "base/thread_pool.h"
#include "tensor/arena.h"

namespace bl {

struct OpTable;
struct StepAdapters;

// What an op needs besides its arguments: where to run, and scratch memory. Passed explicitly to
// every op; there is no global or per-thread current context.
struct ExecContext {
  const OpTable* ops = nullptr;
  Arena* scratch = nullptr;       // device memory of this step
  ThreadPool* threads = nullptr;  // host backends
  void* stream = nullptr;         // cudaStream_t of the CUDA backend
  // For layers, not for ops: what is added to products of which rows (nn/lora.h); null: nothing.
  const StepAdapters* adapters = nullptr;
  bool deterministic = false;  // kernels are chosen without regard to the batch
};

}  // namespace bl
