#include "model/draft_loader.h"

#include "model/arch_library.h"
#include "model/block_loader.h"
#include "model/hf_config.h"

namespace bl {

DraftLoader::DraftLoader(ModelFiles files, const Args& args)
    : backend_(args.backend),
      files_(std::move(files)),
      spec_(build_draft_spec(ArchLibrary(args.archs), HfConfig(files_.config, files_.config_file),
                             args.target)),
      source_(*files_.source, spec_.layers.arch->rename),
      reader_(backend_, source_, files_.gptq ? &*files_.gptq : nullptr, args.done) {
  reader_.begin(WeightReader::Phase::kCheck);
  static_cast<void>(walk());
}

DraftHead::Parts DraftLoader::walk() {
  const ArchSpec& arch = *spec_.layers.arch;
  const std::int64_t hidden = spec_.layers.hidden;
  DraftHead::Parts parts;
  parts.combine = reader_.linear(reader_.key_of("", arch.draft->combine),
                                 {.in = spec_.width(), .out = hidden});
  if (spec_.norm) parts.norm = reader_.norm(*spec_.norm, "", arch.draft->norm->name, {Shape{hidden}});
  BlockLoader loader(spec_.layers, reader_);
  for (std::size_t i = 0; i < spec_.layers.blocks.size(); ++i) {
    parts.blocks.push_back(loader.load(i));
  }
  if (spec_.layers.final_norm) {
    parts.final_norm =
        reader_.norm(*spec_.layers.final_norm, "", arch.final_norm->name, {Shape{hidden}});
  }
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
