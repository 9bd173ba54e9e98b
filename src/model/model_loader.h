#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/shard.h"
#include "model/draft_loader.h"
#include "model/load_plan.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/renamed_source.h"

namespace bl {

struct LoadedWeights;

struct LoadOptions {
  SpecOptions spec;
  std::filesystem::path archs;  // folder of further architectures; empty: none
  // Keeps the embedding table in host memory that the device reads. A tied head is on the device
  // all the same. No effect on backends that read host memory.
  bool embed_host = false;
  std::optional<ModelFiles> draft{};  // side layers that guess for it
  bool mtp = false;                   // its own side layers, in place of these
  // Plain linears that the files hold fused or stacked are loaded apart, as if each were a module
  // of its own (LoadTask::key). For whoever makes such files; such a model takes no adapters.
  bool separate_linears = false;
  // Called after each matrix with bytes done and bytes in all; may throw to stop loading.
  std::function<void(std::size_t done, std::size_t total)> progress;
  // The part of each linear to load (cut_plan()). A share of several can be loaded by load_parts()
  // and load_block(), and has no side layers.
  Share share{};
};

// Opens a model in two steps: the constructor reads headers and the config, finds and checks every
// tensor, and knows what memory the model will take; then all of it, or some of it, is loaded.
// Throws kInvalidFile, kNotFound, kUnsupported with file, tensor or key, what was found and what
// would be right.
class ModelLoader {
 public:
  ModelLoader(Backend& backend, ModelFiles files, LoadOptions options);

  const ModelSpec& spec() const { return spec_; }
  // Without the side layers.
  const LoadPlan& load_plan() const { return plan_; }
  // Lets all that is loaded from here on have these folds. Linears that have one must be plain.
  void fold(const ModelFolds& folds) { plan_.fold(folds); }
  const LoadTotals& weights() const { return totals_; }
  // The side layers; null: none.
  const DraftLoader* draft() const { return draft_.get(); }
  // Cache of each layer of the model that load() makes.
  std::vector<KvLayout> kv_layouts(CacheTypes type) const;
  const AdapterSites& adapter_sites() const { return plan_.sites; }
  // Tensors of the files that the architecture does not use, sorted.
  std::vector<std::string> unused_tensors() const;

  struct PlanOptions {
    CacheTypes cache{};
    std::int64_t context = 0;
    std::int64_t sequences = 1;
    std::int64_t step_tokens = 512;
    std::int64_t logit_rows = 1;
    std::size_t adapter_bytes = 0;
  };
  MemoryPlan plan(const PlanOptions& options) const;

  // The whole model, once: what the plan holds of the matrices is given up on the way.
  std::unique_ptr<Model> load();

  // What a device needs that holds some of the blocks. The other blocks are empty, and so are,
  // where the range is without them, embedding, final norm and head. May be called again, also for
  // the same range; what each call gives has memory of its own. `on` is of the kind of backend that
  // the plan was made for.
  Model::Parts load_parts(Backend& on, const LoadRange& range);
  // One block alone, as above.
  Block load_block(Backend& on, std::size_t layer);

 private:
  LoadedWeights run(Backend& on, const LoadRange& range, bool release);
  void count(std::size_t bytes);
  std::size_t weight_bytes() const;
  WorkShape work_shape() const;

  Backend& backend_;
  ModelFiles files_;
  LoadOptions options_;
  ModelSpec spec_;
  RenamedSource source_;
  LoadPlan plan_;
  LoadTotals totals_;  // of the plan
  std::unique_ptr<DraftLoader> draft_;
  std::size_t done_bytes_ = 0;    // of the load that runs
  std::size_t stored_bytes_ = 0;  // of all that it will load
};

// Both steps at once.
std::unique_ptr<Model> load_model(Backend& backend, ModelFiles files, const LoadOptions& options);

}  // namespace bl
