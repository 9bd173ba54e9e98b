#include "model/model_loader.h"

#include <algorithm>

#include "base/error.h"
#include "model/arch_library.h"
#include "model/config_keys.h"
#include "model/load_run.h"
#include "model/model_planner.h"
#include "model/shard_plan.h"

namespace bl {
namespace {

ModelSpec read_spec(const ModelFiles& files, const LoadOptions& options) {
  ModelSpec spec = build_model_spec(ArchLibrary(options.archs), config_of(files), options.spec);
  if (spec.arch->draft) {
    fail(ErrorCode::kUnsupported,
         "{}: {} guesses for another model and is none by itself; --draft names it beside that one",
         spec.config_file, spec.architecture);
  }
  if (options.share.index == 0) warn_of_unknown_keys(spec);
  return spec;
}

// Plans what the files hold. Where that does not fit the config, an absent key may be the reason.
void plan_files(LoadPlanner& planner, const ModelSpec& spec, bool embed_host) {
  try {
    plan_model(planner, spec, embed_host);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidFile && error.code() != ErrorCode::kNotFound) throw;
    throw Error(error.code(),
                error.what() + note_of_sizes(spec.sizes, spec.architecture, error.what()));
  }
}

}  // namespace

ModelLoader::ModelLoader(Backend& backend, ModelFiles files, LoadOptions options)
    : backend_(backend),
      files_(std::move(files)),
      options_(std::move(options)),
      spec_(read_spec(files_, options_)),
      source_(*files_.source, CheckpointNames(*spec_.arch)) {
  const bool whole = options_.share.count == 1;
  LoadPlanner planner({.backend = backend_,
                       .source = source_,
                       .gptq = files_.gptq ? &*files_.gptq : nullptr,
                       .for_shares = !whole,
                       .separate = options_.separate_linears});
  plan_files(planner, spec_, options_.embed_host);
  plan_ = planner.take();
  if (!whole) cut_plan(plan_, backend_, spec_, options_.share);
  totals_ = plan_.totals();
  if (!options_.draft && !options_.mtp) return;
  BL_CHECK(whole);
  draft_ = std::make_unique<DraftLoader>(
      options_.mtp ? files_ : std::move(*options_.draft),
      DraftLoader::Args{backend_, spec_, options_.archs,
                        [this](std::size_t bytes) { count(bytes); }, options_.mtp});
}

// Notes that `bytes` more of the stored weights are loaded.
void ModelLoader::count(std::size_t bytes) {
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(std::min(done_bytes_, stored_bytes_), stored_bytes_);
}

std::size_t ModelLoader::weight_bytes() const {
  std::size_t bytes = totals_.packed + RopeBank::device_bytes(backend_, spec_.ropes);
  if (draft_) {
    bytes +=
        draft_->weights().packed + RopeBank::device_bytes(backend_, draft_->spec().layers.ropes);
  }
  return bytes;
}

WorkShape ModelLoader::work_shape() const {
  WorkShape shape{spec_, totals_.max_in, totals_.max_slots, totals_.max_out};
  if (draft_) {
    const LoadTotals& side = draft_->weights();
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

MemoryPlan ModelLoader::plan(const PlanOptions& options) const {
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
  plan.on_host = totals_.on_host;
  return plan;
}

std::vector<std::string> ModelLoader::unused_tensors() const {
  std::vector<std::string> unused;
  for (const std::string& name : source_.names()) {
    const bool guesses = options_.mtp && draft_->uses(name);
    if (!guesses && !plan_.tensors.contains(name)) unused.push_back(name);
  }
  return unused;
}

LoadedWeights ModelLoader::run(Backend& on, const LoadRange& range, bool release) {
  done_bytes_ = 0;
  stored_bytes_ = plan_.totals(range).stored;
  if (draft_ && release) stored_bytes_ += draft_->weights().stored;
  LoadedWeights loaded;
  loaded.blocks.resize(spec_.blocks.size());
  LoadRun run({on, source_, plan_, release, [this](std::size_t bytes) { count(bytes); }}, loaded);
  run.run(plan_.ids(range));
  return loaded;
}

std::unique_ptr<Model> ModelLoader::load() {
  BL_CHECK(options_.share.count == 1);
  backend_.reserve_weights(weight_bytes());
  Model::Parts parts = make_parts(backend_, spec_, plan_, {}, run(backend_, {}, true));
  if (draft_) parts.draft = draft_->load();
  const WorkShape shape = work_shape();
  parts.max_in = shape.max_in;
  parts.max_slots = shape.max_slots;
  parts.max_out = shape.max_out;
  backend_.finish_weights();
  return std::make_unique<Model>(backend_, std::move(parts));
}

Model::Parts ModelLoader::load_parts(Backend& on, const LoadRange& range) {
  on.reserve_weights(plan_.totals(range).packed + RopeBank::device_bytes(on, spec_.ropes));
  Model::Parts parts = make_parts(on, spec_, plan_, range, run(on, range, false));
  on.finish_weights();
  return parts;
}

Block ModelLoader::load_block(Backend& on, std::size_t layer) {
  const LoadRange range = LoadRange::block(static_cast<std::int32_t>(layer));
  on.reserve_weights(plan_.totals(range).packed);
  LoadedWeights loaded = run(on, range, false);
  Block block = make_block(on, spec_, layer, std::move(loaded.blocks[layer]));
  on.finish_weights();
  return block;
}

std::unique_ptr<Model> load_model(Backend& backend, ModelFiles files, const LoadOptions& options) {
  ModelLoader loader(backend, std::move(files), options);
  return loader.load();
}

}  // namespace bl
