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

class FittingOps;
class OpProfile;
class OpTimer;

struct PackOptions {
  std::int64_t out = 0;  // number of columns to keep (cuts padding); 0: all
  // Column i of the packed matrix is column columns[i] of a quantized matrix, `out` of them. Empty:
  // the matrix's own order. Allowed only if Backend::reorders_hidden().
  std::vector<std::int32_t> columns = {};
  // Packs with the calling thread alone, since other threads of the pool pack other matrices.
  bool one_thread = false;
};

// A copy of `bytes` bytes. Source and destination must not overlap.
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

// Bytes that a backend has allocated in its own memory.
struct MemoryUse {
  std::size_t now = 0;
  std::size_t peak = 0;
};

// A device that runs the ops: its memory, its packing of weights, its table of ops. Opened by name
// through backend/registry.h.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // such as "ref", "cpu", "cuda:0"
  virtual std::string description() const = 0;  // such as "AVX-512 VNNI, 2 threads"
  virtual const OpTable& ops() const = 0;
  // What its ops find in ExecContext::device; null where they need nothing.
  virtual Device* device() { return nullptr; }
  // A context whose ops run here and take their scratch memory from `scratch`.
  ExecContext context(Arena& scratch) {
    return {.ops = &ops(), .device = device(), .scratch = &scratch, .threads = threads()};
  }
  // Returns an observer for a RecordingTable that adds the time of each op to `profile`, which must
  // outlive it.
  virtual std::unique_ptr<OpTimer> op_timer(OpProfile& profile);
  // What making quantized models asks of this backend (ops/fitting.h); null where the code for host
  // memory in convert/ serves.
  virtual FittingOps* fitting() { return nullptr; }

  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void upload(const TensorView& to, const TensorView& from_host) = 0;  // same dtype, shape
  virtual void download(const TensorView& to_host, const TensorView& from) = 0;
  virtual void synchronize() = 0;
  // Copies pieces within the backend's memory, or between it and memory from allocate_transfer().
  // A device may join neighbouring pieces of one size at equal distances into one strided copy:
  // such pieces must lie in one allocation on either side.
  // The copies are ordered with the steps, or part of one, and may be in flight on return;
  // synchronize() waits.
  virtual void copy_pieces(std::span<const CopyPiece> pieces);
  // Allocates host memory that copy_pieces() can access; empty if the system has none left.
  virtual Buffer allocate_transfer(std::size_t bytes) { return try_allocate_host(bytes); }
  // Whether ops can read ordinary host memory, so that a mapped table need not be copied.
  virtual bool reads_host_memory() const { return true; }

  // Free bytes of a device's memory; UINT64_MAX if the backend uses host memory.
  virtual std::uint64_t free_memory() const { return UINT64_MAX; }
  // What the backend has allocated of a device's memory, which can be more than what was requested
  // of it.
  virtual MemoryUse memory_use() const { return {}; }
  // Bytes it takes for itself with any model: work space of libraries, constants.
  virtual std::size_t own_bytes() const { return 0; }
  // Bytes it takes only while weights are loaded.
  virtual std::size_t loading_bytes() const { return 0; }
  // Bytes that the driver may take later and that nobody can count exactly: loaded kernels,
  // recorded steps.
  virtual std::size_t driver_bytes() const { return 0; }

  // Allocates memory that lives as long as the model, beside what pack() takes; small pieces share
  // allocations. weight_bytes() is how much of that memory a piece of `bytes` bytes takes.
  virtual Buffer allocate_weights(std::size_t bytes) { return allocate(bytes); }
  virtual std::size_t weight_bytes(std::size_t bytes) const { return bytes; }
  // Allocates the memory for all weights at once, before the first is packed. Throws kOutOfMemory.
  virtual void reserve_weights(std::size_t) {}
  // Waits until all weights are in place, and frees what only loading needed.
  virtual void finish_weights() {}

  // Packs a matrix straight from the file's codes. Dense matrices may stay in the mapped file, so
  // the result may keep matrix.owner alive.
  virtual std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix, const PackOptions&) = 0;
  // Whether several threads may call pack() at once, each with PackOptions::one_thread.
  virtual bool packs_at_once() const { return false; }
  // Makes, once per layer, what the op `experts` needs beside the packed matrices; null if nothing.
  virtual std::unique_ptr<PackedExperts> pack_experts(std::span<const ExpertWeights>) {
    return nullptr;
  }
  // Returns the matrix as F32 [in, out] in original channel order, with columns as in
  // PackOptions::columns. Tests use it to prove that packing loses nothing.
  virtual Tensor unpack(const PackedMatrix& matrix) = 0;
  // Whether the backend can generate the bytes of seeded arrays (HostArray::seeded) itself. Then
  // pack() does so for codes and for plain matrices that are not transposed, and make_seeded() for
  // a table, which must be contiguous in the backend's memory.
  virtual bool makes_seeded() const { return false; }
  virtual void make_seeded(const TensorView& to, const SeededValues& values);
  // Whether channels that only two consecutive layers share should be packed in the order in which
  // the second layer stores them (PackOptions::columns of the first).
  virtual bool reorders_hidden() const { return false; }
  // Device bytes that the result of pack() will hold.
  virtual std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions&) = 0;
  // Number of elements, including padding, of a row of activations as the product gathers it.
  virtual std::int64_t packed_inputs(const WeightMatrix& matrix) const {
    return in_features(matrix);
  }
  // Device bytes that the result of pack_experts() for this many experts will hold.
  virtual std::size_t expert_table_bytes(std::int64_t) const { return 0; }

  // The sizes that determine how much scratch memory the ops of a step take. `max_in` and `max_out`
  // are the largest input and output of any matmul.
  struct ScratchShape {
    std::int64_t tokens = 0;
    std::int64_t logit_rows = 0;
    std::int64_t hidden = 0;  // width of the residual stream; 0: unknown
    std::int64_t max_in = 0;
    std::int64_t max_slots = 0;  // the largest packed_inputs(); 0: unknown
    std::int64_t max_out = 0;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t experts = 0;  // per layer
    std::int64_t experts_per_token = 0;
    std::int64_t expert_intermediate = 0;
  };
  // Upper bound of the scratch bytes that ops themselves take in a step.
  virtual std::size_t scratch_bytes(const ScratchShape& shape) const = 0;

  // The sizes of a linear, and bytes that FittingOps takes for it beside its arguments: factor()
  // with its result, and round(). `group`: the slots of the largest group.
  struct FittingShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t group = 0;
    bool sweeps = false;
  };
  struct FittingBytes {
    std::size_t factor = 0;
    std::size_t round = 0;
  };
  virtual FittingBytes fitting_bytes(const FittingShape&) const { return {}; }

  // Call before the first attention of a step, and again before attention over other spans.
  // `sequences` must live as long as the plan, which is valid until the next call.
  virtual const AttentionPlan* plan_attention(ExecContext&, std::span<const SequenceSpan>) {
    return nullptr;
  }

  // The key under which a step with these sequences is recorded: equal keys mean equal launches,
  // given equal numbers of tokens and of wanted rows. 0 means that it must not be recorded.
  virtual std::uint64_t step_key(std::span<const SequenceSpan>) const { return 0; }
  // Whether a step may be enqueued while the one before it is still running.
  virtual bool runs_ahead() const { return false; }
  // Runs `body`, which enqueues one step. A backend may capture the launches of a key and replay
  // them; the body then runs for its uploads alone. Key 0 is never captured. `step_buffer` (0 or 1)
  // selects the page-locked inputs and results of the step: at most one step of each buffer is
  // under way, so the call first waits for the last step that used it.
  virtual void run_step(std::uint64_t, int /*step_buffer*/, ExecContext& ctx,
                        const std::function<void(ExecContext&)>& body) {
    body(ctx);
  }
  // Waits until the last step that used the buffer has ended.
  virtual void wait_step(int /*step_buffer*/) {}

  // The choices between two kernels that measured tables decide, and the name of this machine's
  // table. choose_launch() overrides one choice for measurements, until the backend is closed; it
  // throws kInvalidArgument for an unknown name.
  virtual std::vector<LaunchChoice> launch_choices() const { return {}; }
  virtual std::string launch_plan_name() const { return {}; }
  virtual void choose_launch(std::string_view name, std::int64_t from);

  virtual CacheType default_cache_type() const = 0;
  // Names the order of rows inside a page. Pages with different names are not interchangeable.
  virtual std::string_view page_order() const { return "rows"; }
  virtual ThreadPool* threads() { return nullptr; }
};

}  // namespace bl
