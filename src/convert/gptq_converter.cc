#include "convert/gptq_converter.h"

#include "base/file.h"
#include "base/log.h"
#include "convert/quantized_output.h"

namespace bl {
namespace {

// Everything that the bytes of the result depend on.
Json describe(const GptqConvertArgs& args) {
  const GptqLayout& layout = args.layout;
  return {{"version", 1},
          {"format", layout.v2 ? "gptq_v2" : "gptq"},
          {"model", args.source},
          {"calibration", hash_of(args.calibration).hex()},
          {"bits", layout.bits},
          {"group_size", layout.group_size},
          {"sym", layout.symmetric},
          {"desc_act", layout.act_order},
          {"natural_order", layout.natural_order},
          {"min_max", layout.min_max},
          {"damping", args.quantize.damping},
          {"sweeps", args.quantize.sweeps},
          {"correction", args.quantize.correction}};
}

// The keys of AutoGPTQ and GPTQModel (docs/formats/gptq.md §2). Their readers take them from
// config.json or from quantize_config.json.
Json quantization_config(const GptqConvertArgs& args) {
  const GptqLayout& layout = args.layout;
  return {{"quant_method", "gptq"},
          {"bits", layout.bits},
          {"group_size", layout.group_size},
          {"desc_act", layout.act_order},
          {"static_groups", false},
          {"sym", layout.symmetric},
          {"lm_head", false},
          {"damp_percent", args.quantize.damping},
          {"true_sequential", true},
          {"checkpoint_format", layout.v2 ? "gptq_v2" : "gptq"},
          {"pack_dtype", "int32"},
          {"meta", {{"quantizer", {"bitloom:1"}}}}};
}

// config.json of the result. Scales and all other tensors are binary16, which is also what the
// kernels of some readers compute in, so that these must not take another type from the source.
Json model_config(Json config, const Json& quantization) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.contains(key)) config[key] = "float16";
  }
  config["quantization_config"] = quantization;
  return config;
}

}  // namespace

GptqConverter::GptqConverter(const GptqConvertArgs& args)
    : args_(args), loader_(args.backend, args.files, conversion_load_options(args.archs)) {
  check_gptq_layout(args.layout);
  check_conversion_source(loader_, args.calibration);
  bool warned = false;
  for (std::size_t i = 0; i < blocks(); ++i) {
    const ModelPart block = ModelPart::block(loader_, args.backend, i);
    for (const LinearSite& linear : block.linears()) {
      check_gptq_shape(linear.key, linear.in(), linear.out());
      if (args.layout.has_short_group(linear.in()) && !warned) {
        warned = true;
        log_warning(
            "{} has {} inputs, so that its last group of {} is short; AutoGPTQ and ExLlama read "
            "that, but vLLM does not: --group_size 32, 64 or -1 may fit all linears",
            linear.key, linear.in(), args.layout.group_size);
      }
      size_[linear.key] = static_cast<double>(linear.in() * linear.out());
      weights_ += size_[linear.key];
    }
  }
  job_.emplace(args.work, describe(args), args.restart);
  rate_.emplace(*job_, args.layout.bits, Json::object());
}

void GptqConverter::quantize() {
  if (rate_->has_part(blocks() - 1)) return;
  ModelPart ends = ModelPart::ends(loader_, args_.backend);
  TwoPaths paths = start_paths(ends, args_.calibration);
  const GptqRounder rounder(args_.layout, args_.quantize.sweeps);
  const auto report = [&](std::size_t done) {
    if (!args_.progress) return;
    args_.progress("quantize", static_cast<std::int64_t>(done),
                   static_cast<std::int64_t>(blocks()));
  };
  for (std::size_t i = 0; i < blocks(); ++i) {
    report(i);
    ModelPart block = ModelPart::block(loader_, args_.backend, i);
    if (rate_->has_part(i)) {
      replay_block(block, args_.backend, paths, part_rows(rate_->open_part(i)));
    } else {
      rate_->save_part(i, quantize_block(block, args_.backend, paths, rounder, args_.quantize));
    }
  }
  report(blocks());
}

GptqReport GptqConverter::write(const std::filesystem::path& folder, std::uint64_t shard_bytes) {
  GptqReport report;
  double bits = 0.0;
  for (std::size_t part = 0; part < blocks(); ++part) {
    for (LinearReport& linear : part_reports(rate_->open_part(part))) {
      bits += linear.bits * size_.at(linear.key);
      report.linears.push_back(std::move(linear));
    }
  }
  report.bits_per_weight = bits / weights_;
  const Json quantization = quantization_config(args_);
  report.bytes =
      write_quantized({.files = args_.files,
                       .loader = loader_,
                       .rate = *rate_,
                       .parts = blocks(),
                       .folder = folder,
                       .shards = {.max_bytes = shard_bytes, .metadata = {{"format", "pt"}}},
                       .config = model_config(args_.files.config, quantization)});
  write_file_atomically(folder / "quantize_config.json", json_text(quantization, 2) + "\n");
  return report;
}

Json to_json(const GptqReport& report) {
  Json linears = Json::array();
  for (const LinearReport& linear : report.linears) {
    linears.push_back(
        {{"key", linear.key}, {"bits", linear.bits}, {"relative_error", linear.relative_error}});
  }
  return {{"bits_per_weight", report.bits_per_weight},
          {"bytes", report.bytes},
          {"linears", std::move(linears)}};
}

}  // namespace bl
