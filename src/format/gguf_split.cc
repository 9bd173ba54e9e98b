#include "format/gguf_split.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

namespace bl {
namespace {

constexpr std::string_view kEnding = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kDigits = 5;

// Takes "-", "-of-" or the like and five digits off the end of `text`.
std::optional<std::int64_t> take_number(std::string_view& text, std::string_view before) {
  if (text.size() < before.size() + kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < 1) {
    return std::nullopt;
  }
  text.remove_suffix(kDigits);
  if (!text.ends_with(before)) return std::nullopt;
  text.remove_suffix(before.size());
  return number;
}

}  // namespace

std::filesystem::path GgufShardName::of(std::int64_t shard) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, shard, count);
}

std::optional<GgufShardName> parse_gguf_shard_name(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  std::string_view rest = name;
  if (!rest.ends_with(kEnding)) return std::nullopt;
  rest.remove_suffix(kEnding.size());
  const auto count = take_number(rest, kOf);
  if (!count) return std::nullopt;
  const auto number = take_number(rest, "-");
  if (!number || *number > *count) return std::nullopt;
  return GgufShardName{std::string(rest), *number, *count};
}

std::vector<std::filesystem::path> gguf_shards(const std::filesystem::path& file) {
  const auto name = parse_gguf_shard_name(file);
  if (!name) return {file};
  std::vector<std::filesystem::path> shards;
  for (std::int64_t i = 1; i <= name->count; ++i)
    shards.push_back(file.parent_path() / name->of(i));
  return shards;
}

}  // namespace bl
