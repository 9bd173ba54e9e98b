#include "model/model_loader.h"

#include <algorithm>

#include "base/error.h"
#include "model/arch_library.h"
#include "model/block_loader.h"
#include "model/hf_config.h"

namespace bl {
namespace {

ModelSpec read_spec(const ModelFiles& files, const LoadOptions& options) {
  ModelSpec spec = build_model_spec(ArchLibrary(options.archs),
                                    HfConfig(files.config, files.config_file), options.spec);
  if (spec.arch->draft) {
    fail(ErrorCode::kUnsupported,
         "{}: {} guesses for another model and is none by itself; --draft names it beside that one",
         spec.config_file, spec.architecture);
  }
  return spec;
}

}  // namespace

ModelLoader::ModelLoader(Backend& backend, ModelFiles files, LoadOptions options)
    : backend_(backend),
      files_(std::move(files)),
      options_(std::move(options)),
      spec_(read_spec(files_, options_)),
      source_(*files_.source, spec_.arch->rename),
      reader_(backend, source_, files_.gptq ? &*files_.gptq : nullptr,
              [this](std::size_t bytes) { count(bytes); }) {
  reader_.begin(WeightReader::Phase::kCheck);
  static_cast<void>(walk());
  if (!options_.draft && !options_.mtp) return;
  draft_ = std::make_unique<DraftLoader>(
      options_.mtp ? files_ : std::move(*options_.draft),
      DraftLoader::Args{backend_, spec_, options_.archs,
                        [this](std::size_t bytes) { count(bytes); }, options_.mtp});
}

// Bytes of one matrix more are packed.
void ModelLoader::count(std::size_t bytes) {
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(std::min(done_bytes_, stored_bytes()), stored_bytes());
}

std::size_t ModelLoader::stored_bytes() const {
  return reader_.totals().stored + (draft_ ? draft_->weights().stored : 0);
}

std::size_t ModelLoader::weight_bytes() const {
  std::size_t bytes = reader_.totals().packed + RopeBank::device_bytes(backend_, spec_.ropes);
  if (draft_) {
    bytes +=
        draft_->weights().packed + RopeBank::device_bytes(backend_, draft_->spec().layers.ropes);
  }
  return bytes;
}

WorkShape ModelLoader::work_shape() const {
  const WeightReader::Totals& totals = reader_.totals();
  WorkShape shape{spec_, totals.max_in, totals.max_slots, totals.max_out};
  if (draft_) {
    const WeightReader::Totals& side = draft_->weights();
    shape.max_in = std::max(shape.max_in, side.max_in);
    shape.max_slots = std::max(shape.max_slots, side.max_slots);
    shape.max_out = std::max(shape.max_out, side.max_out);
    shape.draft = &draft_->spec();
  }
  return shape;
}

std::vector<KvLayout> ModelLoader::kv_layouts(CacheTypes type) const {
  std::vector<KvLayout> layouts = spec_.kv_layouts(type);
  if (draft_) {
    const std::vector<KvLayout> side = draft_->spec().layers.kv_layouts(type);
    layouts.insert(layouts.end(), side.begin(), side.end());
  }
  return layouts;
}

Embedding ModelLoader::embedding() {
  const ArchSpec& arch = *spec_.arch;
  const auto table = [&](const Names& names, std::int64_t least_rows, bool on_host) {
    const WeightReader::TableShape shape{least_rows, spec_.hidden, on_host};
    for (const std::string& name : names) {
      if (reader_.has_tensor(name + ".weight")) return reader_.table(name + ".weight", shape);
    }
    return reader_.table(names.at(0) + ".weight", shape);
  };
  Embedding result(table(arch.embed, spec_.vocab, options_.embed_host), spec_.embed_multiplier);
  for (const std::string& name : arch.embed) {
    const TensorInfo* info = source_.find(name + ".weight");
    if (info == nullptr) continue;
    reader_.add_site(
        name,
        {.in = info->shape[0], .out = spec_.hidden, .is_embedding = true, .replaceable = true});
    break;
  }
  if (!arch.positions.empty()) {
    result.set_positions(
        table(arch.positions, std::min(spec_.context, spec_.max_positions), false));
    if (spec_.context > spec_.max_positions) {
      fail(ErrorCode::kInvalidArgument,
           "a context of {} tokens is more than the {} positions this model has learned",
           spec_.context, spec_.max_positions);
    }
  }
  if (spec_.embed_norm) {
    result.set_norm(
        reader_.norm(*spec_.embed_norm, "", arch.embed_norm->name, {Shape{spec_.hidden}}));
  }
  return result;
}

// What adapters may call the head, whatever it is called here.
Linear ModelLoader::with_site(Linear head, bool replaceable) {
  for (const std::string& name : spec_.arch->head) {
    reader_.add_site(name, {.in = spec_.hidden,
                            .out = spec_.vocab,
                            .parts = {{.linear = head.id(), .count = spec_.vocab}},
                            .replaceable = replaceable});
  }
  return head;
}

// A stored head always wins; a tied one is the embedding.
Linear ModelLoader::head() {
  const ArchSpec& arch = *spec_.arch;
  const std::string* found = reader_.pick("", arch.head);
  if (found != nullptr) {
    const bool plain = reader_.has_tensor(*found + ".weight");
    if (!spec_.normalize_head || !plain) {
      // What adapters bring in its place has no bias.
      const bool replaceable = source_.find(*found + ".bias") == nullptr;
      return with_site(reader_.linear(*found, {.in = spec_.hidden,
                                               .out = spec_.vocab,
                                               .more_out = true,
                                               .replaceable = replaceable}),
                       replaceable);
    }
  } else if (!spec_.tied) {
    fail(ErrorCode::kNotFound,
         "{}: the model has no output head {}.weight, and tie_word_embeddings is not true",
         spec_.config_file, arch.head.at(0));
  }
  const std::string* embed = found != nullptr ? found : reader_.pick("", arch.embed);
  const std::string name = (embed != nullptr ? *embed : arch.embed.at(0)) + ".weight";
  if (reader_.phase() == WeightReader::Phase::kLoad) return reader_.linear(DenseMatrix{}, 0);
  LoadHints hints;
  hints.in = spec_.hidden;
  hints.out = spec_.vocab;
  hints.more_out = true;
  if (spec_.normalize_head)
    reader_.set_site_refusal("the rows of its weight are scaled to length 1");
  Linear head = with_site(
      reader_.linear(load_dense_matrix(source_, name, hints), spec_.vocab, spec_.normalize_head),
      true);
  reader_.set_site_refusal("");
  return head;
}

Model::Parts ModelLoader::walk() {
  Model::Parts parts;
  parts.embedding = embedding();
  BlockLoader loader(spec_, reader_);
  for (std::size_t i = 0; i < spec_.blocks.size(); ++i) {
    parts.blocks.push_back(spec_.runs(i) ? loader.load(i) : Block({}, {}));
  }
  if (spec_.final_norm) {
    parts.final_norm =
        reader_.norm(*spec_.final_norm, "", spec_.arch->final_norm->name, {Shape{spec_.hidden}});
  }
  parts.head = head();
  return parts;
}

MemoryPlan ModelLoader::plan(const PlanOptions& options) const {
  const WeightReader::Totals& totals = reader_.totals();
  const std::vector<KvLayout> layouts = kv_layouts(options.cache);
  MemoryPlan plan;
  plan.weights = weight_bytes();
  plan.cache = cache_bytes(layouts, options.context, options.sequences);
  plan.work = model_work_bytes(work_shape(), backend_, options.step_tokens, options.logit_rows);
  if (draft_ && draft_->spec().chain) {
    const CarriedPlaces places{options.logit_rows, options.sequences};
    plan.work += arena_bytes(DType::kF32, places.rows() * spec_.hidden);
  }
  plan.adapters = options.adapter_bytes;
  plan.backend = backend_.own_bytes();
  plan.loading = backend_.loading_bytes();
  plan.driver = backend_.driver_bytes();
  plan.on_host = totals.on_host;
  return plan;
}

std::vector<std::string> ModelLoader::unused_tensors() const {
  std::vector<std::string> unused;
  for (const std::string& name : source_.names()) {
    const bool guesses = options_.mtp && draft_->uses(name);
    if (!guesses && !reader_.was_used(name)) unused.push_back(name);
  }
  return unused;
}

std::unique_ptr<Model> ModelLoader::load() {
  backend_.reserve_weights(plan({.step_tokens = 1}).weights);
  reader_.begin(WeightReader::Phase::kLoad);
  done_bytes_ = 0;
  Model::Parts parts = walk();
  if (draft_) parts.draft = draft_->load();
  const WorkShape shape = work_shape();
  parts.max_in = shape.max_in;
  parts.max_slots = shape.max_slots;
  parts.max_out = shape.max_out;
  parts.ropes = RopeBank(backend_, spec_.ropes);
  backend_.finish_weights();
  parts.spec = spec_;
  parts.adapter_sites = reader_.sites();
  return std::make_unique<Model>(backend_, std::move(parts));
}

std::unique_ptr<Model> load_model(Backend& backend, ModelFiles files, const LoadOptions& options) {
  ModelLoader loader(backend, std::move(files), options);
  return loader.load();
}

}  // namespace bl
