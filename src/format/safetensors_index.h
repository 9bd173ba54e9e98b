#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace bl {

// A *.safetensors.index.json, which says which shard holds which tensor. Whether it counts depends
// on the folder around it (SafetensorsFolder), so reading never throws for its contents.
struct SafetensorsIndex {
  std::filesystem::path path;
  std::map<std::string, std::string> shard_of;  // from tensor name to file name
  std::set<std::string> shards;
  std::string mistake;  // why the file is no index at all, in one line; empty if it is one
};

// Throws kNotFound or kIo if the file cannot be read, kInvalidFile if it is larger than 256 MiB.
SafetensorsIndex read_safetensors_index(const std::filesystem::path& path);

}  // namespace bl
