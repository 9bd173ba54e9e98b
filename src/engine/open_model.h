#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/model_files.h"
#include "text/tokenizer.h"

namespace bl {

// Modules whose names fit the pattern are those of another model.
struct WeightOverride {
  std::string pattern;  // TensorOverride::pattern
  std::filesystem::path model;
};

// Everything that a model on disk consists of, opened but not loaded: a folder in Hugging Face
// layout, or a .gguf file.
struct OpenedModel {
  ModelFiles files;
  Json generation_config;  // null where there is none
  std::string generation_config_file;
  std::filesystem::path path;
  // Of a .gguf: what stands in for the files of a folder.
  std::optional<std::string> tokenizer_json;
  std::string tokenizer_config_json;
  std::string note;                       // what deserves to be said before it is loaded, or empty
  std::vector<WeightOverride> overrides;  // that `files` has
};

// `archs`: folder of further architectures, or empty. Throws kNotFound, kInvalidFile,
// kUnsupported.
OpenedModel open_model(const std::filesystem::path& path, const std::filesystem::path& archs);
// The same, but some modules are those of other models (model/overridden_source.h). Throws
// kInvalidArgument, too.
OpenedModel open_model(const std::filesystem::path& path, const std::filesystem::path& archs,
                       std::span<const WeightOverride> overrides);

// Whether it is no model by itself but side layers for another one (model/draft_spec.h). Throws
// kUnsupported where its architecture is unknown.
bool is_draft_layers(const OpenedModel& model, const std::filesystem::path& archs);

// The tokenizer of an opened model.
std::unique_ptr<Tokenizer> load_tokenizer(const OpenedModel& model);
// The tokenizer alone; a folder needs no config.json for it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const std::filesystem::path& archs);

}  // namespace bl
