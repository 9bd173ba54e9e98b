#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace bl {

// Which blocks run, in what order: runs of layers such as "0..15,11..31" (both ends are in; a
// layer alone is its number). What is left out is not loaded; what comes again runs again, on the
// same weights, with a cache of its own. Empty: each once. Throws kInvalidArgument.
std::vector<std::int32_t> parse_layer_map(std::string_view map, std::int64_t layers);

}  // namespace bl
