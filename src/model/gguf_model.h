#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "model/arch_library.h"
#include "model/gguf_source.h"

namespace bl {

// A GGUF file as if it were a Hugging Face folder.
struct GgufModel {
  Json config;                                // config.json
  Json generation_config;                     // generation_config.json
  std::string tokenizer_json;                 // empty where the file holds no vocabulary
  Json tokenizer_config;                      // tokenizer_config.json
  std::shared_ptr<const GgufSource> tensors;  // expanded to fp16 as they are read
  // "Q4_1: 210, F32: 61": element types and how many tensors have them.
  std::string stored_types;
};

// Reads metadata and tensor directory; weights stay in the file. Throws kNotFound, kIo,
// kInvalidFile, kUnsupported.
GgufModel open_gguf(const std::filesystem::path& path, const ArchLibrary& archs);
// The same for a file that is open already.
GgufModel describe_gguf(std::shared_ptr<const GgufFile> file, const ArchLibrary& archs);

// Whether a path given for a model means a GGUF file (by its name, or by its first four bytes).
bool is_gguf(const std::filesystem::path& path);

}  // namespace bl
