#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace bl {

// Parses which blocks run and in what order: runs of layers such as "0..15,11..31" (both ends are
// included; a single layer is its number). Layers that are left out are not loaded; a repeated
// layer runs again on the same weights, with a cache of its own. Empty: each layer once. Throws
// kInvalidArgument.
std::vector<std::int32_t> parse_layer_map(std::string_view map, std::int64_t layers);

}  // namespace bl
