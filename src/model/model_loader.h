#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/draft_loader.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/renamed_source.h"
#include "model/weight_reader.h"

namespace bl {

struct LoadOptions {
  SpecOptions spec;
  std::filesystem::path archs;  // folder of further architectures; empty: none
  // The table of tokens stays in host memory that the device reads; a tied head is on the device
  // all the same. No effect on backends that read host memory.
  bool embed_host = false;
  std::optional<ModelFiles> draft{};  // side layers that guess for it
  bool mtp = false;                   // its own such layers, in place of these
  // Called after each matrix with bytes done and bytes in all; may throw to stop loading.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

// Opens a model in two steps: the constructor reads headers and the config, finds and checks every
// tensor, and knows what memory the model will take; load() packs. Throws kInvalidFile, kNotFound,
// kUnsupported with file, tensor or key, what was found and what would be right.
class ModelLoader {
 public:
  ModelLoader(Backend& backend, ModelFiles files, LoadOptions options);

  const ModelSpec& spec() const { return spec_; }
  const WeightReader::Totals& weights() const { return reader_.totals(); }
  // Its side layers; null: none.
  const DraftLoader* draft() const { return draft_.get(); }
  // Cache of each layer of the model that load() makes.
  std::vector<KvLayout> kv_layouts(CacheTypes type) const;
  const AdapterSites& adapter_sites() const { return reader_.sites(); }
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

  std::unique_ptr<Model> load();

 private:
  Model::Parts walk();
  void count(std::size_t bytes);
  std::size_t stored_bytes() const;
  std::size_t weight_bytes() const;
  WorkShape work_shape() const;
  Linear head();
  Linear with_site(Linear head, bool replaceable);
  Embedding embedding();

  Backend& backend_;
  ModelFiles files_;
  LoadOptions options_;
  ModelSpec spec_;
  RenamedSource source_;
  std::size_t done_bytes_ = 0;
  WeightReader reader_;
  std::unique_ptr<DraftLoader> draft_;
};

// Both steps at once.
std::unique_ptr<Model> load_model(Backend& backend, ModelFiles files, const LoadOptions& options);

}  // namespace bl
