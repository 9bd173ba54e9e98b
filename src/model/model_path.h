#pragma once
#include <filesystem>

namespace bl {

// What a path given for a model stands for: a GGUF file, or a folder in Hugging Face layout.
struct ModelPath {
  std::filesystem::path gguf = {};     // the file, or a shard of the model; empty: a folder
  std::filesystem::path folder = {};   // with config.json; empty for a GGUF file
  std::filesystem::path weights = {};  // the one file of `folder` that counts; empty: all
};

// A folder that holds one GGUF model and no .safetensors file stands for that model. A .safetensors
// file stands for the folder around it, and is all of its weights unless an index names it as one
// shard of several. Throws kNotFound where there is nothing, and kInvalidArgument, saying what to
// give instead, for other files and for a folder with several GGUF models.
ModelPath resolve_model_path(const std::filesystem::path& path);

// Whether a file is GGUF (by its name, or by its first four bytes).
bool is_gguf(const std::filesystem::path& path);

}  // namespace bl
