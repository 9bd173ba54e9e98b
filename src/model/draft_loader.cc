#include "model/draft_loader.h"

#include "model/arch_library.h"
#include "model/block_loader.h"
#include "model/hf_config.h"
#include "model/numbered_name.h"

namespace bl {

namespace {

DraftSpec read_spec(const ModelFiles& files, const DraftLoader::Args& args) {
  const HfConfig config(files.config, files.config_file);
  return args.mtp ? build_mtp_spec(config, args.target)
                  : build_draft_spec(ArchLibrary(args.archs), config, args.target);
}

}  // namespace

DraftLoader::DraftLoader(ModelFiles files, const Args& args)
    : backend_(args.backend),
      files_(std::move(files)),
      spec_(read_spec(files_, args)),
      source_(*files_.source, spec_.layers.arch->rename),
      reader_(backend_, source_, files_.gptq ? &*files_.gptq : nullptr, args.done) {
  reader_.begin(WeightReader::Phase::kCheck);
  static_cast<void>(walk());
}

Norm DraftLoader::norm(const std::optional<NormSpec>& spec, const std::string& prefix,
                       const std::optional<NormArch>& arch) {
  if (!spec) return {};
  return reader_.norm(*spec, prefix, arch->name, {Shape{spec_.layers.hidden}});
}

std::vector<Norm> DraftLoader::state_norms(const DraftArch& arch) {
  std::vector<Norm> norms;
  if (!spec_.state_norm) return norms;
  for (std::int64_t i = 0; i < std::ssize(spec_.states); ++i) {
    NormArch one = *arch.state_norms;
    for (std::string& name : one.name) name = with_number(name, "{i}", i);
    norms.push_back(norm(spec_.state_norm, "", one));
  }
  return norms;
}

DraftHead::Parts DraftLoader::walk() {
  const ArchSpec& arch = *spec_.layers.arch;
  // A chain's tensors are all below its layer.
  const std::string prefix = spec_.chain ? arch.layer : "";
  DraftHead::Parts parts;
  parts.combine =
      reader_.linear(reader_.key_of(prefix, spec_.chain ? arch.mtp->combine : arch.draft->combine),
                     {.in = spec_.combined(), .out = spec_.layers.hidden});
  parts.norm = norm(spec_.norm, prefix, spec_.chain ? arch.mtp->state_norm : arch.draft->norm);
  if (!spec_.chain) parts.state_norms = state_norms(*arch.draft);
  if (spec_.chain) parts.embed_norm = norm(spec_.embed_norm, prefix, arch.mtp->embed_norm);
  BlockLoader loader(spec_.layers, reader_);
  for (std::size_t i = 0; i < spec_.layers.blocks.size(); ++i) {
    parts.blocks.push_back(loader.load(i));
  }
  parts.final_norm =
      norm(spec_.layers.final_norm, prefix, spec_.chain ? arch.mtp->final_norm : arch.final_norm);
  return parts;
}

std::unique_ptr<DraftHead> DraftLoader::load() {
  reader_.begin(WeightReader::Phase::kLoad);
  DraftHead::Parts parts = walk();
  parts.ropes = RopeBank(backend_, spec_.layers.ropes);
  parts.spec = spec_;
  return std::make_unique<DraftHead>(backend_, std::move(parts));
}

}  // namespace bl
