#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "format/gptq_config.h"
#include "format/tensor_source.h"

namespace bl {

// A model's config and its tensors, wherever they are stored.
struct ModelFiles {
  Json config;
  std::string config_file = "config.json";  // for messages
  std::shared_ptr<const TensorSource> source;
  std::optional<GptqConfig> gptq;
};

// Opens a folder in Hugging Face layout, with all its weights or those of the file `weights` alone.
// Throws kNotFound, kInvalidFile, kUnsupported.
ModelFiles open_model_folder(const std::filesystem::path& folder,
                             const std::filesystem::path& weights = {});

}  // namespace bl
