#include "convert/conversion_source.h"

#include "base/error.h"

namespace bl {

LoadOptions load_options_of(const ConversionJob& job) {
  LoadOptions options;
  options.archs = job.archs;
  options.separate_linears = true;
  return options;
}

void check_conversion_source(const ModelLoader& loader, const Calibration& calibration) {
  if (calibration.rows.empty() || calibration.held_out.empty()) {
    fail(ErrorCode::kInvalidArgument, "there are no calibration rows, or none that are held out");
  }
  if (loader.spec().hidden % 32 != 0) {
    fail(ErrorCode::kUnsupported,
         "the hidden size of the model is {}; EXL2 and GPTQ hold linears only whose inputs are a "
         "multiple of 32, so that it cannot be converted",
         loader.spec().hidden);
  }
  if (!loader.spec().runs_each_once()) {
    fail(ErrorCode::kUnsupported, "a model with a layer map cannot be converted");
  }
}

Hash128 hash_of(const Calibration& calibration) {
  SipHash hash;
  for (const auto* rows : {&calibration.held_out, &calibration.rows}) {
    hash.update(static_cast<std::uint64_t>(rows->size()));
    for (const auto& row : *rows) {
      hash.update(static_cast<std::uint64_t>(row.size()));
      hash.update(std::as_bytes(std::span(row)));
    }
  }
  return hash.finish();
}

TwoPaths start_paths(ModelPart& ends, const Calibration& calibration) {
  TwoPaths paths;
  paths.held_out = calibration.held_out.size();
  for (const auto* rows : {&calibration.held_out, &calibration.rows}) {
    for (const auto& row : *rows) {
      paths.chunks.emplace_back(std::span(&row, 1));
      paths.original.push_back(ends.embed(paths.chunks.back()));
      paths.quantized.push_back(ends.embed(paths.chunks.back()));
    }
  }
  return paths;
}

}  // namespace bl
