#include "model/draft_loader.h"

#include "model/arch_library.h"
#include "model/block_planner.h"
#include "model/config_keys.h"
#include "model/load_run.h"
#include "model/numbered_name.h"

namespace bl {

namespace {

DraftSpec read_spec(const ModelFiles& files, const DraftLoader::Args& args) {
  const HfConfig config = config_of(files);
  if (args.mtp) return build_mtp_spec(config, args.target);
  DraftSpec spec = build_draft_spec(ArchLibrary(args.archs), config, args.target);
  warn_of_unknown_keys(spec.layers);
  return spec;
}

// Plans all tasks of the side layers.
class DraftPlanner {
 public:
  DraftPlanner(LoadPlanner& planner, const DraftSpec& spec)
      : planner_(planner),
        spec_(spec),
        arch_(*spec.layers.arch),
        // The tensors of a chain are all named below its layer.
        prefix_(spec.chain ? arch_.layer : "") {}

  void plan() {
    planner_.linear(
        {.role = Role::kDraftCombine},
        planner_.key_of(prefix_, spec_.chain ? arch_.mtp->combine : arch_.draft->combine),
        {.in = spec_.combined(), .out = spec_.layers.hidden});
    norm({.role = Role::kDraftNorm}, spec_.norm,
         spec_.chain ? arch_.mtp->state_norm : arch_.draft->norm);
    if (!spec_.chain) state_norms();
    if (spec_.chain) norm({.role = Role::kDraftEmbedNorm}, spec_.embed_norm, arch_.mtp->embed_norm);
    BlockPlanner blocks(spec_.layers, planner_);
    for (std::size_t i = 0; i < spec_.layers.blocks.size(); ++i) blocks.plan(i);
    norm({.role = Role::kFinalNorm}, spec_.layers.final_norm,
         spec_.chain ? arch_.mtp->final_norm : arch_.final_norm);
  }

 private:
  void norm(const LoadTarget& target, const std::optional<NormSpec>& spec,
            const std::optional<NormArch>& arch) {
    if (spec) planner_.norm(target, *spec, {prefix_, arch->name, {Shape{spec_.layers.hidden}}});
  }

  void state_norms() {
    if (!spec_.state_norm) return;
    for (std::int32_t i = 0; i < std::ssize(spec_.states); ++i) {
      NormArch one = *arch_.draft->state_norms;
      for (std::string& name : one.name) name = with_number(name, "{i}", i);
      norm({.role = Role::kDraftStateNorm, .index = i}, spec_.state_norm, one);
    }
  }

  LoadPlanner& planner_;
  const DraftSpec& spec_;
  const ArchSpec& arch_;
  std::string prefix_;
};

}  // namespace

DraftLoader::DraftLoader(ModelFiles files, const Args& args)
    : backend_(args.backend),
      files_(std::move(files)),
      spec_(read_spec(files_, args)),
      source_(*files_.source, CheckpointNames(*spec_.layers.arch)),
      done_(args.done) {
  LoadPlanner planner({backend_, source_, files_.gptq ? &*files_.gptq : nullptr});
  DraftPlanner(planner, spec_).plan();
  plan_ = planner.take();
  totals_ = plan_.totals();
}

std::unique_ptr<DraftHead> DraftLoader::load() {
  LoadedWeights loaded;
  loaded.blocks.resize(spec_.layers.blocks.size());
  LoadRun run({backend_, source_, plan_, true, done_}, loaded);
  run.run(plan_.ids());
  DraftHead::Parts parts;
  parts.combine = std::move(loaded.combine);
  parts.norm = std::move(loaded.draft_norm);
  parts.embed_norm = std::move(loaded.draft_embed_norm);
  parts.state_norms = std::move(loaded.state_norms);
  for (std::size_t i = 0; i < loaded.blocks.size(); ++i) {
    parts.blocks.push_back(make_block(backend_, spec_.layers, i, std::move(loaded.blocks[i])));
  }
  parts.final_norm = std::move(loaded.final_norm);
  parts.ropes = RopeBank(backend_, spec_.layers.ropes);
  parts.spec = spec_;
  return std::make_unique<DraftHead>(backend_, std::move(parts));
}

}  // namespace bl
