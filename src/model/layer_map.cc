#include "model/layer_map.h"

#include <charconv>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "model/arch_spec.h"

namespace bl {
namespace {

std::optional<std::int32_t> layer_of(std::string_view text, std::int64_t layers) {
  std::int32_t layer = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return layer >= 0 && layer < layers ? std::optional(layer) : std::nullopt;
}

}  // namespace

std::vector<std::int32_t> parse_layer_map(std::string_view map, std::int64_t layers) {
  std::vector<std::int32_t> order;
  if (map.empty()) {
    order.resize(static_cast<std::size_t>(layers));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  constexpr std::string_view kTo = "..";
  while (true) {
    const std::size_t comma = map.find(',');
    const std::string_view run = map.substr(0, comma);
    const std::size_t to = run.find(kTo);
    const auto first = layer_of(run.substr(0, to), layers);
    const auto last =
        to == std::string_view::npos ? first : layer_of(run.substr(to + kTo.size()), layers);
    if (!first || !last || *last < *first) {
      fail(ErrorCode::kInvalidArgument,
           "--layer-map: '{}' is no run of layers; those of this model are 0 … {}, such as 0..{}",
           run.substr(0, 40), layers - 1, layers - 1);
    }
    if (static_cast<std::int64_t>(order.size()) + *last - *first >= kMaxLayers) {
      fail(ErrorCode::kInvalidArgument, "--layer-map: more than {} layers", kMaxLayers);
    }
    for (std::int32_t layer = *first; layer <= *last; ++layer) order.push_back(layer);
    if (comma == std::string_view::npos) return order;
    map.remove_prefix(comma + 1);
  }
}

}  // namespace bl
