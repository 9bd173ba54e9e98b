#pragma once
// JSON values (nlohmann), and reading them from files that may be hostile.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace bl {

using Json = nlohmann::json;
// Keeps the order of keys; for documents whose order is visible (chat template variables, files
// that people read). Look-up is linear, so never for big objects.
using OrderedJson = nlohmann::ordered_json;

// Parses a whole document. `what` names it in the error ("config.json", "line 3 of the input").
// Throws kInvalidFile with the position of the first mistake; nesting deeper than 200 is refused.
Json parse_json(std::string_view text, std::string_view what);
OrderedJson parse_ordered_json(std::string_view text, std::string_view what);

// Reads and parses a file of at most `max_bytes`.
Json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes = 64u << 20);

}  // namespace bl
