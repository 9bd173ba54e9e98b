#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "model/arch_library.h"
#include "model/gguf_source.h"

namespace bl {

// A GGUF model seen as a Hugging Face folder.
struct GgufModel {
  Json config;                                // config.json
  Json generation_config;                     // generation_config.json
  std::string tokenizer_json;                 // empty if the file holds no vocabulary
  Json tokenizer_config;                      // tokenizer_config.json
  std::shared_ptr<const GgufSource> tensors;  // expanded to fp16 when they are read
  // Element types and how many tensors have them: "Q4_1: 210, F32: 61".
  std::string stored_types;
};

// Reads metadata and tensor directory; weights stay in the file. Any shard stands for a split
// model. Throws kNotFound, kIo, kInvalidFile, kUnsupported.
GgufModel open_gguf(const std::filesystem::path& path, const ArchLibrary& archs);
// As above, for a file that is already open.
GgufModel describe_gguf(std::shared_ptr<const GgufFile> file, const ArchLibrary& archs);

}  // namespace bl
