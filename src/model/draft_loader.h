#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "model/draft_head.h"
#include "model/load_plan.h"
#include "model/model_files.h"
#include "model/renamed_source.h"

namespace bl {

// Opens the side layers for a model in two steps, as ModelLoader does the model: the constructor
// finds and checks every tensor, load() packs. Throws as build_draft_spec and LoadPlanner do.
class DraftLoader {
 public:
  // `archs`: folder of further architectures, or empty. `done(bytes)`: LoadRun::Args::done. The
  // backend and `target` must outlive the loader.
  struct Args {
    Backend& backend;
    const ModelSpec& target;
    std::filesystem::path archs;
    std::function<void(std::size_t)> done;
    bool mtp = false;  // `files` are the target's own, and so are the layers
  };
  DraftLoader(ModelFiles files, const Args& args);

  const DraftSpec& spec() const { return spec_; }
  const LoadTotals& weights() const { return totals_; }
  bool uses(const std::string& tensor) const { return plan_.tensors.contains(tensor); }
  // Once.
  std::unique_ptr<DraftHead> load();

 private:
  Backend& backend_;
  ModelFiles files_;
  DraftSpec spec_;
  RenamedSource source_;
  std::function<void(std::size_t)> done_;
  LoadPlan plan_;
  LoadTotals totals_;
};

}  // namespace bl
