#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace bl {

// A *.safetensors.index.json: which shard holds which tensor. Whether it can be believed is a
// matter of its folder (SafetensorsFolder), so reading one never throws for what it says.
struct SafetensorsIndex {
  std::filesystem::path path;
  std::map<std::string, std::string> shard_of;  // tensor → file name
  std::set<std::string> shards;
  std::string mistake;  // one line on why it is not an index at all; empty where it is
};

// Throws kIo where the file cannot be read.
SafetensorsIndex read_safetensors_index(const std::filesystem::path& path);

}  // namespace bl
