#pragma once
// JSON values (nlohmann), and how to read them from files that may be hostile.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Parses a whole document. `what` names it in the error ("config.json", "line 3 of the input").
// Throws kInvalidFile with the position of the first mistake, or where nesting is deeper than 200
// levels. The ordered form keeps the last value of a repeated key, at the place of the first.
Json parse_json(std::string_view text, std::string_view what);
OrderedJson parse_ordered_json(std::string_view text, std::string_view what);

// The JSON text of a value for files, results and messages: on one line where `indent` is negative,
// else with `indent` blanks per level. Bytes that are not UTF-8 become U+FFFD. These are functions
// because dump() is slow to compile.
std::string json_text(const Json& value, int indent = -1);
std::string json_text(const OrderedJson& value, int indent = -1);
// The value on one line for a message, cut after at most 60 bytes, between two characters.
std::string json_shown(const Json& value);

// Reads and parses a file of at most `max_bytes`. Throws as read_file() and parse_json() do.
Json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes = 64u << 20);

}  // namespace bl
