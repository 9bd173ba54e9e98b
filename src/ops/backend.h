#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/weight_matrix.h"
#include "ops/attention.h"
#include "ops/exec_context.h"
#include "ops/kv_layout.h"
#include "ops/launch_choice.h"
#include "ops/op_table.h"
#include "ops/packed_matrix.h"
#include "tensor/tensor.h"

namespace bl {

struct PackOptions {
  std::int64_t out = 0;  // columns to keep (padding cut); 0: all
  // Column i of what is packed is column columns[i] of a quantized matrix, `out` of them; empty: as
  // they are. Only where Backend::reorders_hidden().
  std::vector<std::int32_t> columns = {};
};

// So many bytes from one place to another; they do not overlap.
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

// Bytes of its own memory that a backend holds.
struct MemoryUse {
  std::size_t now = 0;
  std::size_t peak = 0;
};

// A device that can run the ops: its memory, its packing, its table. Opened by name through
// backend/registry.h.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "ref", "cpu", "cuda:0"
  virtual std::string description() const = 0;  // "AVX-512 VNNI, 2 threads"
  virtual const OpTable& ops() const = 0;
  // What its ops find in ExecContext::device; null where they need nothing.
  virtual Device* device() { return nullptr; }
  // A context whose ops run here and take their scratch memory from `scratch`.
  ExecContext context(Arena& scratch) {
    return {.ops = &ops(), .device = device(), .scratch = &scratch, .threads = threads()};
  }

  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void upload(const TensorView& to, const TensorView& from_host) = 0;  // same dtype, shape
  virtual void download(const TensorView& to_host, const TensorView& from) = 0;
  virtual void synchronize() = 0;
  // Copies between places in its memory, or between it and memory of allocate_transfer(). Ordered
  // with the steps, or part of one; may be under way when it returns (synchronize() waits).
  virtual void copy_pieces(std::span<const CopyPiece> pieces);
  // Host memory that copy_pieces() reaches; empty where the system has none left.
  virtual Buffer allocate_transfer(std::size_t bytes) { return try_allocate_host(bytes); }
  // Whether ops read ordinary host memory, so that a mapped table need not be copied.
  virtual bool reads_host_memory() const { return true; }

  // Bytes of its memory that are free, where it is not the host's.
  virtual std::uint64_t free_memory() const { return UINT64_MAX; }
  // What it holds of that memory, where it is not the host's: what was allocated, not what was
  // asked of it.
  virtual MemoryUse memory_use() const { return {}; }
  // What it takes for itself, whatever the model: work space of libraries, constants.
  virtual std::size_t own_bytes() const { return 0; }
  // What it takes while weights are loaded, and no longer.
  virtual std::size_t loading_bytes() const { return 0; }
  // What its driver may yet take, which nobody can count: kernels as they are loaded, recorded
  // steps.
  virtual std::size_t driver_bytes() const { return 0; }

  // Memory for what lives as long as the model, beside what pack() takes; small pieces share
  // allocations. weight_bytes: what a piece of so many bytes takes of them.
  virtual Buffer allocate_weights(std::size_t bytes) { return allocate(bytes); }
  virtual std::size_t weight_bytes(std::size_t bytes) const { return bytes; }
  // Takes the memory of all weights at once, before the first of them. Throws kOutOfMemory.
  virtual void reserve_weights(std::size_t) {}
  // Waits until all weights are in place; gives back what was there for loading alone.
  virtual void finish_weights() {}

  // Packs straight from the file's codes. Dense matrices may stay where they are (mapped files), so
  // the result may keep matrix.owner alive.
  virtual std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix, const PackOptions&) = 0;
  // What `experts` of this backend needs of a layer beside its packed matrices, made of them once;
  // null where it needs nothing.
  virtual std::unique_ptr<PackedExperts> pack_experts(std::span<const ExpertWeights>) {
    return nullptr;
  }
  // The matrix back as F32 [in, out] in original channel order, its columns as PackOptions::columns
  // has them: the proof that packing lost nothing.
  virtual Tensor unpack(const PackedMatrix& matrix) = 0;
  // Whether it makes bytes that are not there (HostArray::seeded): pack() those of codes and of
  // plain matrices that are not transposed, make_seeded() those of a table, contiguous in its
  // memory.
  virtual bool makes_seeded() const { return false; }
  virtual void make_seeded(const TensorView& to, const SeededValues& values);
  // Whether channels between two layers, which nobody else sees, should come in the order in which
  // the second has them: the first's columns are packed so (PackOptions::columns).
  virtual bool reorders_hidden() const { return false; }
  // Device bytes that pack() of such a matrix will hold.
  virtual std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions&) = 0;
  // Elements of a row of activations as its products gather it, padding included.
  virtual std::int64_t packed_inputs(const WeightMatrix& matrix) const {
    return in_features(matrix);
  }
  // What pack_experts() of so many experts will hold.
  virtual std::size_t expert_table_bytes(std::int64_t) const { return 0; }

  // Upper bound of scratch bytes that ops take by themselves in a step of `tokens` tokens on a
  // model whose widest matmul input is `max_in` and output `max_out`.
  struct ScratchShape {
    std::int64_t tokens = 0;
    std::int64_t logit_rows = 0;
    std::int64_t hidden = 0;  // width of the residual stream; 0: unknown
    std::int64_t max_in = 0;
    std::int64_t max_slots = 0;  // the most that packed_inputs() says; 0: unknown
    std::int64_t max_out = 0;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t experts = 0;  // of a layer
    std::int64_t experts_per_token = 0;
    std::int64_t expert_intermediate = 0;
  };
  virtual std::size_t scratch_bytes(const ScratchShape& shape) const = 0;

  // To be called before a step's first attention, and again before one of other spans; `sequences`
  // must live as long as the plan. Valid until the next call.
  virtual const AttentionPlan* plan_attention(ExecContext&, std::span<const SequenceSpan>) {
    return nullptr;
  }

  // What a step of such sequences is recorded under: equal keys, equal launches (given equal
  // numbers of tokens and wanted rows). 0: not to be recorded.
  virtual std::uint64_t step_key(std::span<const SequenceSpan>) const { return 0; }
  // Whether a step may be enqueued while the one before it is under way.
  virtual bool runs_ahead() const { return false; }
  // Runs `body`, which enqueues one step. A backend may record the launches of a key and repeat
  // them; the body then runs for its uploads alone. Key 0 is never recorded. `lane`: 0 or 1; of
  // each one step is under way at most: the lane's last one is waited for.
  virtual void run_step(std::uint64_t, int /*lane*/, ExecContext& ctx,
                        const std::function<void(ExecContext&)>& body) {
    body(ctx);
  }
  // Until the last step of the lane is over.
  virtual void wait_step(int /*lane*/) {}

  // What it chooses by measured tables, and under which name that of this machine is kept; and
  // another choice until it is closed, for measuring. Throws kInvalidArgument.
  virtual std::vector<LaunchChoice> launch_choices() const { return {}; }
  virtual std::string launch_plan_name() const { return {}; }
  virtual void choose_launch(std::string_view name, std::int64_t from);

  virtual CacheType default_cache_type() const = 0;
  // Names how rows lie inside a page: pages of another name mean something else.
  virtual std::string_view page_order() const { return "rows"; }
  virtual ThreadPool* threads() { return nullptr; }
};

}  // namespace bl
