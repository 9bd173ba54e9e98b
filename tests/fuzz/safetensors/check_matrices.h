#pragma once
// What both fuzz targets of this folder do with the tensors that they got.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/select_outputs.h"

namespace bl::fuzz {

// Loads, decodes and takes apart the linear KEY. Anything but success or Error is a finding.
inline void check_matrix(const TensorSource& source, const std::string& key,
                         const LoadHints& hints) {
  constexpr std::int64_t kMaxElements = 1 << 15;
  try {
    const WeightMatrix matrix = load_weight_matrix(source, key, hints);
    const std::int64_t in = in_features(matrix), out = out_features(matrix);
    if (out > kMaxElements / in) return;
    const auto values = dequantize_to_half(matrix);
    BL_CHECK(values.size() == static_cast<std::size_t>(in * out));
    BL_CHECK(dequantize_to_half(matrix, RowOrder::kStored).size() == values.size());
    BL_CHECK(stored_bytes(matrix) > 0);
    if (out % 32 == 0) {
      const auto part = dequantize_to_half(slice_outputs(matrix, out - 32, 32));
      BL_CHECK(part.back() == values.back());
    }
  } catch (const Error& e) {
    BL_CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
}

// Keys of all linears that the names speak of.
inline std::vector<std::string> linears_of(const TensorSource& source) {
  std::vector<std::string> keys;
  for (const std::string& name : source.names()) {
    for (const std::string_view suffix : {".q_weight", ".qweight", ".weight"}) {
      if (name.ends_with(suffix)) keys.push_back(name.substr(0, name.size() - suffix.size()));
    }
  }
  return keys;
}

}  // namespace bl::fuzz
