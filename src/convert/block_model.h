#pragma once
#include <memory>
#include <string>
#include <vector>

#include "convert/call_table.h"
#include "convert/linear_source.h"
#include "model/model_loader.h"
#include "model/whole_sequences.h"

namespace bl {

// A linear that conversion quantizes.
struct LinearSite {
  std::string key;  // the module's name in the result, without ".weight"
  std::int32_t id = -1;
  const PackedMatrix* packed = nullptr;
  TensorView weight = {};  // [out, in] in any float type, folded
  TensorView bias = {};    // of any float type, or empty
  DenseMatrix held = {};   // keeps these two where they are no views into the file
  std::int64_t in() const { return weight.columns(); }
  std::int64_t out() const { return weight.rows(); }
  std::int64_t padded_out() const { return padded_outputs(out()); }
};

// Rows of logits that are in memory at a time: ModelPart::run_head() calls for so many.
inline constexpr std::int64_t kLogitRows = 128;

// A few sequences that run together, and what a pass needs for them.
struct Chunk {
  explicit Chunk(std::span<const std::vector<std::int32_t>> rows) : whole(pack_whole(rows)) {}
  std::int64_t tokens() const { return std::ssize(whole.batch.ids); }
  WholeSequences whole;
};

// Whether the calls of such a block leave more for later ones than the residual stream: an input
// that two calls read, the routing of experts behind a shared one, or a sum that a norm awaits.
// Passes that go on at a later call then compute the earlier ones again.
bool needs_replay(const BlockSpec& spec);

// How passes hold keys and values. A card, whose products round their inputs to 16 bits, has fast
// attention for binary16 alone; on hosts they stay exact.
CacheTypes pass_cache(const Backend& backend);

// One part of a model in memory: a block, or what stands before and behind the blocks.
class ModelPart {
 public:
  // Block `number` of spec().order.
  static ModelPart block(ModelLoader& loader, Backend& backend, std::size_t number);
  // Embedding, final norm and head.
  static ModelPart ends(ModelLoader& loader, Backend& backend);

  // The linears with the names of their modules, in the order of the model's own list; without
  // routers and gates of shared experts, which stay as they are.
  const std::vector<LinearSite>& linears() const { return linears_; }
  // Null for a matrix that stays as it is.
  const LinearSite* linear_of(const PackedMatrix* packed) const;
  // needs_replay() of its block.
  bool replays() const { return replays_; }
  // The linears that a call quantizes, each once: values that are the keys repeat these.
  std::vector<const LinearSite*> readers_of(const MatmulArgs& args) const;
  // Returns the states that enter the first block, F32 [tokens, hidden].
  Tensor embed(const Chunk& chunk);
  // Runs the block over the states x, which it updates. Returns the number of calls that the block
  // makes.
  int run_block(const Chunk& chunk, const TensorView& x, const CallPlan& plan);
  // Calls read(first row, logits F32 [rows, vocab]) for a few rows at a time. The head is the
  // plan's only call; if the plan stops before it, the logits hold nothing.
  using ReadLogits = std::function<void(std::int64_t first, const TensorView& logits)>;
  void run_head(const Chunk& chunk, const TensorView& x, const CallPlan& plan,
                const ReadLogits& read);

 private:
  ModelPart(ModelLoader& loader, Backend& backend, const LoadRange& range, std::size_t number);
  Arena& scratch(std::size_t bytes);

  ModelLoader& loader_;
  Backend& backend_;
  std::size_t number_;
  std::unique_ptr<Model> model_;
  std::vector<LinearSite> linears_;
  std::unique_ptr<CallTable> table_;
  bool replays_ = false;
  Arena scratch_;
};

}  // namespace bl
