#include "engine/open_model.h"

#include <map>

#include "base/error.h"
#include "base/json.h"
#include "model/arch_library.h"
#include "model/gguf_model.h"
#include "model/hf_config.h"
#include "model/model_path.h"
#include "model/overridden_source.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

OpenedModel open_gguf_model(const fs::path& path, const fs::path& archs) {
  GgufModel gguf = open_gguf(path, ArchLibrary(archs));
  OpenedModel model;
  model.path = path;
  model.files.config = std::move(gguf.config);
  model.files.config_file = path.string();
  model.files.config_of_gguf = true;
  model.files.source = std::move(gguf.tensors);
  model.generation_config = std::move(gguf.generation_config);
  model.generation_config_file = path.string();
  model.tokenizer_json = std::move(gguf.tokenizer_json);
  model.tokenizer_config_json = json_text(gguf.tokenizer_config);
  model.note = fmt::format("{}: expanded to fp16 in memory (stored as {})", path.string(),
                           gguf.stored_types);
  return model;
}

// Joins the GPTQ settings of another model whose modules are used beside this model's own.
void add_gptq(const std::optional<GptqConfig>& other, const fs::path& from, ModelFiles& files) {
  if (!other) return;
  if (!files.gptq) {
    files.gptq = other;
    return;
  }
  GptqConfig& own = *files.gptq;
  if (own.v2 != other->v2 || own.carries != other->carries) {
    fail(ErrorCode::kUnsupported,
         "--override: zero points of {} are stored in another way than those beside them (GPTQ v1 "
         "and v2); one model cannot have both",
         from.string());
  }
  own.per_module = own.per_module || other->per_module || own.bits != other->bits ||
                   own.group_size != other->group_size;
}

}  // namespace

OpenedModel open_model(const fs::path& path, const fs::path& archs) {
  const ModelPath from = resolve_model_path(path);
  if (!from.gguf.empty()) return open_gguf_model(from.gguf, archs);
  OpenedModel model;
  model.path = from.folder;
  model.weights = from.weights;
  model.files = open_model_folder(from.folder, from.weights);
  const fs::path generation = from.folder / "generation_config.json";
  model.generation_config_file = generation.string();
  if (fs::exists(generation)) model.generation_config = read_json_file(generation);
  return model;
}

OpenedModel open_model(const fs::path& path, const fs::path& archs,
                       std::span<const WeightOverride> overrides) {
  OpenedModel model = open_model(path, archs);
  if (overrides.empty()) return model;
  std::vector<TensorOverride> from;
  std::map<fs::path, ModelFiles> opened;  // several overrides may name the same folder
  for (const WeightOverride& one : overrides) {
    auto at = opened.find(one.model);
    if (at == opened.end()) {
      at = opened.emplace(one.model, open_model(one.model, archs).files).first;
    }
    const ModelFiles& other = at->second;
    from.push_back({one.pattern, other.source, one.model.string()});
    add_gptq(other.gptq, one.model, model.files);
  }
  model.files.source =
      std::make_shared<OverriddenSource>(std::move(model.files.source), std::move(from));
  model.overrides.assign(overrides.begin(), overrides.end());
  return model;
}

bool is_draft_layers(const OpenedModel& model, const fs::path& archs) {
  const HfConfig config(model.files.config, model.files.config_file);
  return ArchLibrary(archs).find(config).spec.draft.has_value();
}

std::unique_ptr<Tokenizer> load_tokenizer(const OpenedModel& model) {
  if (!model.tokenizer_json) return Tokenizer::load(model.path);
  if (model.tokenizer_json->empty()) {
    fail(ErrorCode::kNotFound, "{}: the file holds no vocabulary", model.path.string());
  }
  return Tokenizer::from_json(*model.tokenizer_json, model.tokenizer_config_json,
                              model.path.string());
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path, const fs::path& archs) {
  // A folder may hold nothing but a tokenizer, or one beside GGUF files.
  if (fs::is_directory(path) && Tokenizer::is_in(path)) return Tokenizer::load(path);
  const ModelPath from = resolve_model_path(path);
  if (!from.gguf.empty()) return load_tokenizer(open_gguf_model(from.gguf, archs));
  return Tokenizer::load(from.folder);
}

}  // namespace bl
