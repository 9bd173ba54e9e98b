#include "format/safetensors_index.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <string_view>

#include "base/file.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxBytes = 256u << 20;

// Whether this is a file name that cannot lead out of the folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

SafetensorsIndex read_safetensors_index(const std::filesystem::path& path) {
  SafetensorsIndex index{path, {}, {}, {}};
  const std::string text = read_file(path, kMaxBytes);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::object map;
  if (const auto error = parser.parse(text).get(root); error != simdjson::SUCCESS) {
    index.mistake =
        fmt::format("{}: not valid JSON: {}", path.string(), simdjson::error_message(error));
    return index;
  }
  if (root["weight_map"].get(map) != simdjson::SUCCESS) {
    index.mistake = fmt::format("{}: there is no object \"weight_map\"", path.string());
    return index;
  }
  for (const auto& [tensor, value] : map) {
    std::string_view shard;
    if (value.get(shard) != simdjson::SUCCESS || !is_plain_name(shard)) {
      index.mistake = fmt::format("{}: the shard of tensor {} must be a plain file name",
                                  path.string(), quoted_name(tensor));
      return index;
    }
    index.shard_of.insert_or_assign(std::string(tensor), std::string(shard));
    index.shards.emplace(shard);
  }
  return index;
}

}  // namespace bl
