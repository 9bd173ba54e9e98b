#pragma once
// A model in several GGUF files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf …
// The first file has the model's metadata; each has the metadata split.no (from 0), split.count and
// split.tensors.count (of the whole model), and some of the tensors.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace bl {

// What the name of a file says about its place in a model.
struct GgufShardName {
  std::string stem;         // "NAME"
  std::int64_t number = 0;  // from 1
  std::int64_t count = 0;

  std::filesystem::path of(std::int64_t shard) const;  // the file name of another shard
};
// nullopt for a name that is not of that form.
std::optional<GgufShardName> parse_gguf_shard_name(const std::filesystem::path& file);

// All files of the model that `file` belongs to, in order, whichever of them it is; `file` itself
// if its name is not that of a shard. Whether they exist is not checked.
std::vector<std::filesystem::path> gguf_shards(const std::filesystem::path& file);

}  // namespace bl
