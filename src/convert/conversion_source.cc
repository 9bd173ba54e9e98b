#include "convert/conversion_source.h"

#include "backend/registry.h"
#include "base/error.h"

namespace bl {

LoadOptions load_options_of(const ConversionJob& job) {
  LoadOptions options;
  options.archs = job.archs;
  return options;
}

void check_conversion_source(const ModelLoader& loader, const Calibration& calibration) {
  if (calibration.rows.empty() || calibration.held_out.empty()) {
    fail(ErrorCode::kInvalidArgument, "there are no calibration rows, or none that are held out");
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

void visit_linears(Backend& backend, ModelLoader& loader, const LinearVisitor& visitor) {
  std::unique_ptr<Backend> host;
  if (!backend.reads_host_memory()) host = open_backend("cpu", {.threads = 1});
  Backend& on = host != nullptr ? *host : backend;
  for (std::size_t i = 0; i < loader.spec().order.size(); ++i) {
    const ModelPart block = ModelPart::block(loader, on, i);
    for (const LinearSite& site : block.linears()) visitor.block(site);
  }
  if (visitor.head) visitor.head(ModelPart::ends(loader, on).linears().front());
}

TwoPaths start_paths(ModelLoader& loader, Backend& backend, const Calibration& calibration) {
  ModelPart ends = ModelPart::ends(loader, backend);
  Products products(backend);
  TwoPaths paths;
  paths.held_out = calibration.held_out.size();
  for (const auto* rows : {&calibration.held_out, &calibration.rows}) {
    for (const auto& row : *rows) {
      paths.chunks.emplace_back(std::span(&row, 1));
      const Tensor x = ends.embed(paths.chunks.back());
      paths.original.push_back(products.keep(x.view()));
      paths.quantized.push_back(products.keep(x.view()));
    }
  }
  return paths;
}

}  // namespace bl
