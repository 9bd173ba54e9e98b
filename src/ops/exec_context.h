#pragma once
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/device.h"
#include "tensor/arena.h"

namespace bl {

struct AttentionArgs;
class PackedMatrix;
struct OpTable;
struct StepAdapters;

// The matrices that a GEMM further behind reads, in the memory of the same backend.
struct NextWeights {
  static constexpr int kMost = 4;
  const PackedMatrix* matrices[kMost] = {};
  int count = 0;
  bool partly_issued = false;  // an earlier GEMM was given the same matrices to prefetch
};

// What the step reads after a GEMM, as far as the model knows it: a backend may bring it into a
// cache while the GEMM runs. A hint changes no result.
struct PrefetchHint {
  // Attention that comes later; its queries are not there yet. Null where none is known.
  const AttentionArgs* attention = nullptr;
  // The GEMM makes the queries of `attention`, which is the next op that reads much.
  bool feeds_attention = false;
  NextWeights weights = {};
};

// Which neighbouring ops may become one launch, and which intermediate results may stay in a
// backend's own form between two ops.
enum class Fusion : std::uint8_t {
  kAll,   // whatever OpTable::gemm_fusion offers
  kNone,  // every op by itself, every intermediate result as F32 rows: LoRA adapters and whoever
          // captures a layer's inputs have to read them
};

// What an op needs besides its arguments: where to run, and scratch memory. It is passed to every
// op explicitly; there is no global or per-thread current context.
struct ExecContext {
  const OpTable* ops = nullptr;
  Device* device = nullptr;       // of the backend that `ops` belongs to; null for host backends
  Arena* scratch = nullptr;       // device memory of this step
  ThreadPool* threads = nullptr;  // host backends
  // Layers read these two, ops do not. `adapters`: what is added to the GEMMs of which rows
  // (nn/lora.h), or null. `prefetch`: what layers pass on as MatmulArgs::prefetch.
  const StepAdapters* adapters = nullptr;
  PrefetchHint prefetch = {};
  Fusion fusion = Fusion::kAll;
  // A row's bits do not depend on the other rows of the batch: kernels are chosen without regard to
  // the number of rows, and nothing is fused.
  bool deterministic = false;

  // Fusing changes in which order a row's sums are added up, so determinism forbids it too.
  bool may_fuse() const { return fusion == Fusion::kAll && adapters == nullptr && !deterministic; }
};

}  // namespace bl
