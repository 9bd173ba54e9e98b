#include "convert/conversion_source.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "convert/host_threads.h"
#include "convert/products.h"
#include "format/quoted_name.h"
#include "model/renamed_source.h"

namespace bl {

namespace {

// The first value that is not finite, or beyond binary16.
std::optional<float> unstorable_value(const HostThreads& threads, const TensorView& view) {
  constexpr float kLargest = 65504.0f;
  constexpr std::int64_t kPiece = 1 << 16;
  const std::int64_t count = view.shape.elements();
  std::vector<std::optional<float>> found(static_cast<std::size_t>((count + kPiece - 1) / kPiece));
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    const T* values = view.as<const T>();
    threads.parallel(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<float>(values[i]);
        if (std::fabs(value) <= kLargest) continue;
        found[static_cast<std::size_t>(begin / kPiece)] = value;
        return;
      }
    });
  });
  const auto first = std::find_if(found.begin(), found.end(), [](const auto& one) { return one; });
  return first != found.end() ? *first : std::nullopt;
}

}  // namespace

LoadOptions conversion_load_options(const std::filesystem::path& archs) {
  LoadOptions options;
  options.archs = archs;
  options.separate_linears = true;
  return options;
}

void check_model(const ModelLoader& loader) {
  if (loader.spec().hidden % 32 != 0) {
    fail(ErrorCode::kUnsupported,
         "the hidden size of the model is {}; EXL2 and GPTQ hold only linears whose number of "
         "inputs is a multiple of 32, so that it cannot be converted",
         loader.spec().hidden);
  }
  if (!loader.spec().runs_each_once()) {
    fail(ErrorCode::kUnsupported, "a model with a layer map cannot be converted");
  }
}

void check_conversion_source(const ModelLoader& loader, const Calibration& calibration) {
  if (calibration.rows.empty() || calibration.held_out.empty()) {
    fail(ErrorCode::kInvalidArgument, "there are no calibration rows, or none that are held out");
  }
  check_model(loader);
}

void check_values(const ConversionJob& job, const ModelLoader& loader) {
  const RenamedSource source(*job.files.source, CheckpointNames(*loader.spec().arch));
  Products products(job.backend);
  const HostThreads threads = products.threads();
  for (const std::string& name : loader.load_plan().tensors) {
    const HostArray array = source.read(name);
    const std::optional<float> value = unstorable_value(threads, array.view);
    if (value) {
      fail(
          ErrorCode::kInvalidArgument,
          "tensor {} has the value {}, which no quantized model can hold; the file may be damaged, "
          "so fetch it again or convert another copy of the model",
          quoted_name(name), *value);
    }
    source.done_with(name);
  }
}

void check_loss(const std::string& key, double loss) {
  if (std::isfinite(loss)) return;
  fail(
      ErrorCode::kUnsupported,
      "{}: what rounding it loses is no finite number, because activations in front of it are not; "
      "the original model gives such values on this calibration text, too, or is damaged",
      key);
}

std::string kind_of_device(const Backend& backend) {
  const std::string_view name = backend.name();
  return std::string(name.substr(0, name.find(':')));
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
