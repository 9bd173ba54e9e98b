#pragma once
// What loading a model consists of, as a value: a list of independent tasks, each of which reads
// some tensors and makes one part of the model. The planner (load_planner.h) writes it from a
// ModelSpec and a TensorSource, and checks every tensor meanwhile; LoadRun executes any of its
// tasks in any order; memory is planned by summing over it.

#include <climits>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "format/shard.h"
#include "format/weight_matrix.h"
#include "model/adapter_sites.h"
#include "model/model_folds.h"
#include "nn/norm.h"
#include "ops/backend.h"

namespace bl {

// What a task makes. The order is that of a plan: first what stands before the blocks, then what
// blocks have, then what stands behind them.
enum class Role : std::uint8_t {
  kEmbedding,
  kPositions,
  kEmbedNorm,
  kDraftCombine,
  kDraftNorm,
  kDraftEmbedNorm,
  kDraftStateNorm,  // LoadTarget::index: the state
  kAttentionNorm,
  kAttentionPostNorm,
  kFeedForwardNorm,
  kFeedForwardPostNorm,
  kDensePostNorm,
  kMoeNorm,
  kMoePostNorm,
  kOutputScale,
  kQ,
  kK,
  kV,
  kQkv,
  kAttentionGate,
  kO,
  kQNorm,
  kKNorm,
  kVNorm,
  kSinks,
  kAlibiSlopes,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kXieluAlphaP,
  kXieluAlphaN,
  kXieluBeta,
  kXieluEps,
  kRouter,
  kRouterNorm,
  kSelectionBias,
  kExpertScale,
  kSharedExpertGate,
  kExpertZeros,
  kExpertTable,
  kFinalNorm,
  kHead,
};

// Where the result of a task goes.
struct LoadTarget {
  Role role = Role::kEmbedding;
  std::int32_t block = -1;  // −1: outside the blocks
  // Which feed-forward of the block: −1 the dense one, kSharedExpert, or the number of a routed
  // expert. Roles that say so number something else.
  std::int32_t index = -1;
};
inline constexpr std::int32_t kSharedExpert = -2;

// A linear: its weights and its bias.
struct MatrixWork {
  // As stored and checked; codes are still in the source's files. Empty after LoadRun released it.
  WeightMatrix matrix;
  std::int64_t in = 0;
  std::int64_t out = 0;                    // outputs that are kept
  std::int64_t slots = 0;                  // Backend::packed_inputs
  std::vector<std::int64_t> rows = {};     // these outputs of a plain matrix, in this order, or all
  std::vector<std::int32_t> columns = {};  // PackOptions::columns
  MatrixCut cut = {};                      // applies after `rows`
  bool normalized = false;                 // each output row of a plain matrix has length 1
  std::shared_ptr<const MatrixFold> fold = {};  // of a plain matrix, after `rows`
  bool quantized = false;
  bool reads_alone = false;  // no other task reads its tensors
};
// An F32 vector in the backend's memory; an empty name means that there is none.
struct VectorWork {
  std::string tensor;
  Shape shape;
  std::shared_ptr<const std::vector<float>> values = {};  // in place of the tensor's
};
struct NormWork {
  NormSpec spec;
  VectorWork weight, bias;
};
// An F32 vector in the backend's memory with values that no file holds.
struct ValuesWork {
  std::vector<float> values;
  Shape shape;
};
// A table whose rows ops look up. It stays mapped if the backend reads host memory.
struct TableWork {
  std::string tensor;
  bool on_host = false;  // in host memory that the backend's ops reach (--embed-host)
  std::shared_ptr<const ChannelFold> fold = {};  // changes its columns
};
// A number, read while planning.
struct ScalarWork {
  float value = 0.0f;
};
// What Backend::pack_experts() makes when the block is put together.
struct ExpertTableWork {};

struct LoadTask {
  LoadTarget target;
  std::variant<MatrixWork, NormWork, VectorWork, ValuesWork, TableWork, ScalarWork, ExpertTableWork>
      work;
  std::vector<std::string> tensors = {};  // what it reads
  std::size_t stored = 0;                 // bytes of these in the files that no other task counts
  std::size_t packed = 0;                 // bytes it takes of the backend's memory
  std::size_t on_host = 0;                // beside `packed`: host memory that the device reads
  std::int32_t linear = -1;               // number among the model's linears, if it makes one
  // The module that a linear is, or would be in files that hold it as a module of its own.
  std::string key = {};
};

// Some tasks of a plan: of the blocks [first_block, end_block), with what stands before or behind
// the blocks. All of them by default.
struct LoadRange {
  std::int32_t first_block = 0;
  std::int32_t end_block = INT_MAX;
  bool front = true;  // embedding; for side layers, what stands before their blocks
  bool back = true;   // final norm and head, if there is one

  static LoadRange block(std::int32_t block) { return {block, block + 1, false, false}; }
  bool contains(const LoadTarget& target) const;
};

// Sums over tasks.
struct LoadTotals {
  std::size_t stored = 0;
  std::size_t packed = 0;
  std::size_t quantized_stored = 0;  // of EXL2 and GPTQ matrices alone
  std::size_t quantized_packed = 0;
  std::size_t on_host = 0;
  std::int64_t max_in = 0;     // widest input and output of a product
  std::int64_t max_slots = 0;  // widest input as packed
  std::int64_t max_out = 0;
};

struct LoadPlan {
  // A task's id is its place here. Tasks of a block stand together.
  std::vector<LoadTask> tasks;
  std::vector<std::int32_t> linears;  // the task that makes each
  AdapterSites sites;
  std::set<std::string, std::less<>> tensors;  // all that some task reads

  MatrixWork& matrix(std::int32_t linear);
  const MatrixWork& matrix(std::int32_t linear) const;
  // Lets tasks load plain linears, norms and tables folded.
  void fold(const ModelFolds& folds);
  std::vector<std::int32_t> ids(const LoadRange& range = {}) const;
  LoadTotals totals(const LoadRange& range = {}) const;
};

}  // namespace bl
