#include "model/model_files.h"

#include "base/error.h"
#include "format/safetensors_folder.h"

namespace bl {

HfConfig config_of(const ModelFiles& files) {
  HfConfig config(files.config, files.config_file);
  if (files.config_of_gguf) config.forget_class_options();
  return config;
}

ModelFiles open_model_folder(const std::filesystem::path& folder,
                             const std::filesystem::path& weights) {
  if (!std::filesystem::is_directory(folder)) {
    fail(ErrorCode::kNotFound,
         "{}: no such folder; a model is a folder with config.json and "
         "*.safetensors files",
         folder.string());
  }
  ModelFiles files;
  const std::filesystem::path config = folder / "config.json";
  files.config = read_json_file(config);
  files.config_file = config.string();
  files.gptq = read_gptq_config(folder, files.config);
  files.source = std::make_shared<SafetensorsFolder>(weights.empty() ? folder : weights);
  return files;
}

}  // namespace bl
