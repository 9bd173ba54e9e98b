#pragma once
#include "base/thread_pool.h"
#include "tensor/arena.h"

namespace bl {

struct AttentionArgs;
class PackedMatrix;
struct OpTable;
struct StepAdapters;

// The matrices that a product further behind reads, in the memory of the same backend.
struct NextWeights {
  static constexpr int kMost = 4;
  const PackedMatrix* matrices[kMost] = {};
  int count = 0;
  bool partly_issued = false;  // another product before it was told of them, too
};

// What an op needs besides its arguments: where to run, and scratch memory. Passed explicitly to
// every op; there is no global or per-thread current context.
struct ExecContext {
  const OpTable* ops = nullptr;
  Arena* scratch = nullptr;       // device memory of this step
  ThreadPool* threads = nullptr;  // host backends
  void* stream = nullptr;         // cudaStream_t of the CUDA backend
  // For layers, not for ops: what is added to products of which rows (nn/lora.h); null: nothing.
  const StepAdapters* adapters = nullptr;
  // While a feed-forward behind its block's attention runs: the next block's, whose cache products
  // may bring near as MatmulArgs::attention_behind says, or null. Its queries are not there yet.
  const AttentionArgs* next_attention = nullptr;
  // While a layer runs: what the one behind begins with, which products may bring near as well.
  NextWeights next_weights = {};
  bool deterministic = false;  // kernels are chosen without regard to the batch
};

}  // namespace bl
