#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "format/gptq_config.h"
#include "format/tensor_source.h"
#include "model/hf_config.h"

namespace bl {

// A model's config and its tensors, wherever they are stored.
struct ModelFiles {
  Json config;
  std::string config_file = "config.json";  // for messages
  std::shared_ptr<const TensorSource> source;
  std::optional<GptqConfig> gptq;
  // The config was made from a GGUF file's metadata, where an absent key does not mean what
  // transformers' config class makes of it.
  bool config_of_gguf = false;
};

// The config as architectures read it.
HfConfig config_of(const ModelFiles& files);

// Opens a folder in Hugging Face layout, with all its weights or those of the file `weights` alone.
// Throws kNotFound, kInvalidFile, kUnsupported.
ModelFiles open_model_folder(const std::filesystem::path& folder,
                             const std::filesystem::path& weights = {});

}  // namespace bl
