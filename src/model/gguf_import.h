#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "model/arch_library.h"

namespace bl {

struct GgufImportArgs {
  std::filesystem::path file;
  std::filesystem::path folder;
  bool force = false;  // replace a folder that is not empty
  std::uint64_t shard_bytes = std::uint64_t{8} << 30;
  // Called from time to time by the calling thread with bytes of weights written so far and in all.
  // May throw to interrupt; nothing of the import remains then.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct GgufImportResult {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  // of weights
  std::int64_t shards = 0;
  bool tokenizer = false;
};

// Writes the model of a GGUF file as a Hugging Face folder: fp16 safetensors (an index and shards
// above `shard_bytes`), config.json, generation_config.json, tokenizer.json,
// tokenizer_config.json. The folder appears under its name only when it is complete. Memory stays
// bounded by a few pieces of a tensor.
GgufImportResult import_gguf(const GgufImportArgs& args, const ArchLibrary& archs);

}  // namespace bl
