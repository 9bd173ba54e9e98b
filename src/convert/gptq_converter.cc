#include "convert/gptq_converter.h"

#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "convert/device_plan.h"
#include "convert/expert_pass.h"
#include "convert/linear_source.h"
#include "convert/quantize_blocks.h"
#include "convert/quantized_output.h"
#include "convert/source_names.h"

namespace bl {
namespace {

// Everything that the bytes of the result depend on.
Json describe(const GptqConvertArgs& args) {
  const GptqLayout& layout = args.layout;
  return {{"version", 4},
          {"format", layout.v2 ? "gptq_v2" : "gptq"},
          {"model", args.job.source},
          {"device", kind_of_device(args.job.backend)},
          {"calibration", hash_of(args.job.calibration).hex()},
          {"bits", layout.bits},
          {"group_size", layout.group_size},
          {"sym", layout.symmetric},
          {"desc_act", layout.act_order},
          {"natural_order", layout.natural_order},
          {"min_max", layout.min_max},
          {"damping", args.job.quantize.damping},
          {"sweeps", args.job.quantize.sweeps},
          {"correction", args.job.quantize.correction}};
}

// The keys of AutoGPTQ and GPTQModel (docs/formats/gptq.md §2). Their readers take them from
// config.json or from quantize_config.json.
Json quantization_config(const GptqConvertArgs& args, const Json& exceptions) {
  const GptqLayout& layout = args.layout;
  Json config{{"quant_method", "gptq"},
              {"bits", layout.bits},
              {"group_size", layout.group_size},
              {"desc_act", layout.act_order},
              {"static_groups", false},
              {"sym", layout.symmetric},
              {"lm_head", false},
              {"damp_percent", args.job.quantize.damping},
              {"true_sequential", true},
              {"checkpoint_format", layout.v2 ? "gptq_v2" : "gptq"},
              {"pack_dtype", "int32"},
              {"meta", {{"quantizer", {"bitloom:1"}}}}};
  if (!exceptions.empty()) config["dynamic"] = exceptions;
  return config;
}

// The linears of blocks that stay plain, as GPTQModel and vLLM want to be told. They know of
// routers and of the gates of shared experts.
Json exceptions_of(const ModelFiles& files, const ModelLoader& loader,
                   const std::set<std::string>& plain) {
  const SourceNames names(files, loader);
  Json exceptions = Json::object();
  for (const LoadTask& task : loader.load_plan().tasks) {
    const Role role = task.target.role;
    const bool is_expected = role == Role::kRouter || role == Role::kSharedExpertGate;
    if (task.linear < 0 || task.target.block < 0 || is_expected) continue;
    if (is_quantized(loader, task) && !plain.contains(task.key)) continue;
    const std::string tensor = names.name_of(task.key + ".weight");
    std::string pattern;
    for (const char c : tensor.substr(0, tensor.rfind('.')))
      pattern += c == '.' ? "\\." : std::string(1, c);
    exceptions["-:^" + pattern + "$"] = Json::object();
  }
  return exceptions;
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
    : args_(args),
      loader_(args.job.backend, args.job.files, conversion_load_options(args.job.archs)) {
  check_gptq_layout(args.layout);
  check_conversion_source(loader_, args.job.calibration);
  for (const std::int32_t layer : loader_.spec().order) {
    for (const LoadTask* linear : quantized_linears(loader_, LoadRange::block(layer))) add(*linear);
  }
  if (!plain_.empty() && !args.job.rehearsed) {
    log_warning(
        "{} linears stay in binary16, because the number of their outputs is no multiple of 32, "
        "which GPTQ needs (--format exl2 pads them); the first is {}",
        plain_.size(), *plain_.begin());
  }
  if (!args.job.rehearsed) warn_of_plain_linears(loader_);
  job_.emplace(args.job.work, describe(args), args.job.restart);
  rate_.emplace(*job_, args.layout.bits, Json::object());
  DeviceSizes sizes = device_sizes(args.job, loader_, linears_);
  sizes.group_slots = args.layout.group_size;
  plan_device(args.job.backend, sizes, args.job.device_memory);
}

void GptqConverter::add(const LoadTask& linear) {
  const auto& work = std::get<MatrixWork>(linear.work);
  // What one module holds is written as one matrix.
  const std::int64_t out = is_fused_part(linear) ? out_features(work.matrix) : work.out;
  if (!fits_gptq(work.in, out)) {
    plain_.insert(linear.key);
    return;
  }
  const bool is_short = args_.layout.has_short_group(work.in) && !args_.job.rehearsed;
  if (is_short && !std::exchange(warned_, true)) {
    log_warning(
        "{} has {} inputs, so that its last group of {} is short; AutoGPTQ and ExLlama read that, "
        "but vLLM does not: --group_size 32, 64 or -1 may fit all linears",
        linear.key, work.in, args_.layout.group_size);
  }
  weights_[linear.key] = work.in * work.out;
  linears_.push_back({.key = linear.key, .in = work.in, .out = padded_outputs(work.out)});
}

void GptqConverter::quantize() {
  if (rate_->is_finished()) return;
  check_values(args_.job, loader_);
  TwoPaths paths = start_paths(loader_, args_.job.backend, args_.job.calibration);
  const GptqRounder rounder(args_.layout, args_.job.quantize.sweeps, plain_);
  const auto report = [&](std::size_t done) {
    if (!args_.job.progress) return;
    args_.job.progress("quantize", static_cast<std::int64_t>(done),
                       static_cast<std::int64_t>(blocks()));
  };
  std::vector<double> block_errors = quantize_blocks(
      {loader_, args_.job.backend, rounder, *rate_, args_.job.quantize, report}, paths);
  warn_of_unreached(paths.unreached_experts);
  ModelPart ends = ModelPart::ends(loader_, args_.job.backend);
  OutputQuality quality = compare_outputs(ends, args_.job.backend, paths, nullptr);
  quality.block_errors = std::move(block_errors);
  rate_->finish(quality);
  report(blocks());
}

ConvertReport GptqConverter::write(const std::filesystem::path& folder, std::uint64_t shard_bytes) {
  const Json quantization =
      quantization_config(args_, exceptions_of(args_.job.files, loader_, plain_));
  const std::uint64_t bytes =
      write_quantized({.files = args_.job.files,
                       .loader = loader_,
                       .rate = *rate_,
                       .parts = blocks(),
                       .folder = folder,
                       .shards = {.max_bytes = shard_bytes, .metadata = {{"format", "pt"}}},
                       .config = model_config(args_.job.files.config, quantization),
                       .as_in_source = true});
  write_file_atomically(folder / "quantize_config.json", json_text(quantization, 2) + "\n");
  return report(bytes);
}

ConvertReport GptqConverter::report(std::uint64_t bytes) const {
  ConvertReport report = report_of({.folder = *rate_,
                                    .parts = blocks(),
                                    .weights = weights_,
                                    .calibration = args_.job.calibration,
                                    .bytes = bytes});
  report.device = args_.job.backend.description();
  report.target_bits = args_.layout.bits;
  return report;
}

}  // namespace bl
