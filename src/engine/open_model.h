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

// Takes the modules whose names match `pattern` from another model.
struct WeightOverride {
  std::string pattern;  // TensorOverride::pattern
  std::filesystem::path model;
};

// A model on disk, opened but not loaded: a folder in Hugging Face layout, or a GGUF file.
struct OpenedModel {
  ModelFiles files;
  Json generation_config;  // null if there is none
  std::string generation_config_file;
  std::filesystem::path path;     // the folder, or the GGUF file
  std::filesystem::path weights;  // the one file of the folder that counts; empty: all
  // For a .gguf file: what a folder would have as files.
  std::optional<std::string> tokenizer_json;
  std::string tokenizer_config_json;
  std::string note;                       // what to tell the user before loading, or empty
  std::vector<WeightOverride> overrides;  // those applied to `files`
};

// `path` is what resolve_model_path() takes. `archs`: folder of further architectures, or empty.
// Throws kNotFound, kInvalidArgument, kInvalidFile, kUnsupported.
OpenedModel open_model(const std::filesystem::path& path, const std::filesystem::path& archs);
// Opens a model with some modules of other models (model/overridden_source.h). Also throws
// kInvalidArgument.
OpenedModel open_model(const std::filesystem::path& path, const std::filesystem::path& archs,
                       std::span<const WeightOverride> overrides);

// Whether this is no model by itself but side layers for another one (model/draft_spec.h). Throws
// kUnsupported if its architecture is unknown.
bool is_draft_layers(const OpenedModel& model, const std::filesystem::path& archs);

// Loads the tokenizer of an opened model.
std::unique_ptr<Tokenizer> load_tokenizer(const OpenedModel& model);
// Loads the tokenizer alone; a folder needs no config.json for that.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const std::filesystem::path& archs);

}  // namespace bl
