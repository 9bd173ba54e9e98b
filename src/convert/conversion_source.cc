#include "convert/conversion_source.h"

#include "base/error.h"

namespace bl {

LoadOptions conversion_load_options(const std::filesystem::path& archs) {
  LoadOptions options;
  options.archs = archs;
  return options;
}

void check_conversion_source(const ModelLoader& loader, const Calibration& calibration) {
  if (calibration.rows.empty()) {
    fail(ErrorCode::kInvalidArgument, "there are no calibration rows");
  }
  if (!loader.spec().runs_each_once()) {
    fail(ErrorCode::kUnsupported, "a model with a layer map cannot be converted");
  }
}

Hash128 hash_of(const Calibration& calibration) {
  SipHash hash;
  for (const auto& row : calibration.rows) {
    hash.update(static_cast<std::uint64_t>(row.size()));
    hash.update(std::as_bytes(std::span(row)));
  }
  return hash.finish();
}

TwoPaths start_paths(ModelPart& ends, const Calibration& calibration) {
  TwoPaths paths;
  for (const auto& row : calibration.rows) {
    paths.chunks.emplace_back(std::span(&row, 1));
    paths.original.push_back(ends.embed(paths.chunks.back()));
    paths.quantized.push_back(ends.embed(paths.chunks.back()));
  }
  return paths;
}

}  // namespace bl
