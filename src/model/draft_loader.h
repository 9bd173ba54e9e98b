#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "model/draft_head.h"
#include "model/model_files.h"
#include "model/renamed_source.h"
#include "model/weight_reader.h"

namespace bl {

// Opens the side layers for a model in two steps, as ModelLoader does the model: the constructor
// finds and checks every tensor, load() packs. Throws as build_draft_spec and WeightReader do.
class DraftLoader {
 public:
  // `archs`: folder of further architectures, or empty. `done(bytes)`: as WeightReader has it.
  // The backend must outlive it, and `target` it.
  struct Args {
    Backend& backend;
    const ModelSpec& target;
    std::filesystem::path archs;
    std::function<void(std::size_t)> done;
    bool mtp = false;  // `files` are the target's own, and so are the layers
  };
  DraftLoader(ModelFiles files, const Args& args);

  const DraftSpec& spec() const { return spec_; }
  const WeightReader::Totals& weights() const { return reader_.totals(); }
  bool uses(const std::string& tensor) const { return reader_.was_used(tensor); }
  std::unique_ptr<DraftHead> load();

 private:
  DraftHead::Parts walk();
  std::vector<Norm> state_norms(const DraftArch& arch);
  Norm norm(const std::optional<NormSpec>& spec, const std::string& prefix,
            const std::optional<NormArch>& arch);

  Backend& backend_;
  ModelFiles files_;
  DraftSpec spec_;
  RenamedSource source_;
  WeightReader reader_;
};

}  // namespace bl
