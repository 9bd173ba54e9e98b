#include "convert/converter.h"

#include "base/error.h"
#include "convert/conversion_source.h"
#include "convert/exl2_output.h"
#include "convert/head_mix.h"
#include "convert/measure_model.h"

namespace bl {
namespace {

// Everything that the bytes of the result depend on.
Json describe(const ConvertArgs& args) {
  return {{"version", 1},
          {"model", args.source},
          {"calibration", hash_of(args.calibration).hex()},
          {"measure_rows", args.measure_rows},
          {"bits", args.bits},
          {"head_bits", args.head_bits},
          {"damping", args.quantize.damping},
          {"sweeps", args.quantize.sweeps},
          {"correction", args.quantize.correction}};
}

LoadOptions load_options(const ConvertArgs& args) {
  LoadOptions options;
  options.archs = args.archs;
  return options;
}

}  // namespace

Converter::Converter(const ConvertArgs& args)
    : args_(args), loader_(args.backend, args.files, load_options(args)) {
  check_conversion_source(loader_, args.calibration);
  head_groups(args.head_bits, loader_.spec().hidden);
  ModelPart::ends(loader_, args.backend);
  for (std::size_t i = 0; i < blocks(); ++i) ModelPart::block(loader_, args.backend, i);
  job_.emplace(args.work, describe(args), args.restart);
}

std::string Converter::head_key() const { return loader_.spec().arch->head.at(0); }

const ErrorMeasurement& Converter::measure() {
  if (!measurement_) measurement_ = job_->measurement();
  if (!measurement_) {
    measurement_ = measure_model({.loader = loader_,
                                  .backend = args_.backend,
                                  .calibration = args_.calibration,
                                  .rows = args_.measure_rows,
                                  .damping = args_.quantize.damping,
                                  .progress = [&](std::int64_t done, std::int64_t total) {
                                    if (args_.progress) args_.progress("measure", done, total);
                                  }});
    job_->save(*measurement_);
  }
  return *measurement_;
}

const BitPlan& Converter::plan() {
  if (!plan_) plan_ = plan_bits(measure(), args_.bits);
  return *plan_;
}

void Converter::quantize() {
  std::map<std::string, GroupList> groups;
  for (const PlannedLinear& linear : plan().linears) groups[linear.key] = linear.groups;
  const Exl2Rounder rounder(groups, args_.quantize.sweeps);
  const std::size_t parts = blocks() + 1;
  if (job_->has_part(parts - 1)) return;
  ModelPart ends = ModelPart::ends(loader_, args_.backend);
  TwoPaths paths = start_paths(ends, args_.calibration);
  const auto report = [&](std::size_t done) {
    if (!args_.progress) return;
    args_.progress("quantize", static_cast<std::int64_t>(done), static_cast<std::int64_t>(parts));
  };
  for (std::size_t i = 0; i < blocks(); ++i) {
    report(i);
    ModelPart block = ModelPart::block(loader_, args_.backend, i);
    if (job_->has_part(i)) {
      replay_block(block, args_.backend, paths, part_rows(job_->open_part(i)));
    } else {
      job_->save_part(i, quantize_block(block, args_.backend, paths, rounder, args_.quantize));
    }
  }
  report(blocks());
  QuantizedLinear head =
      quantize_head(ends, args_.backend, paths, head_groups(args_.head_bits, loader_.spec().hidden),
                    args_.quantize);
  head.key = head_key();
  std::vector<QuantizedLinear> last;
  last.push_back(std::move(head));
  job_->save_part(blocks(), last);
  report(parts);
}

ConvertReport Converter::write(const std::filesystem::path& folder, std::uint64_t shard_bytes) {
  ConvertReport report;
  report.bits_per_weight = plan().bits_per_weight;
  report.predicted_kl = plan().predicted_kl;
  report.bound = plan().bound;
  std::map<std::string, double> predicted;
  for (const PlannedLinear& linear : plan().linears) predicted[linear.key] = linear.predicted_kl;
  for (std::size_t part = 0; part <= blocks(); ++part) {
    for (LinearReport& linear : part_reports(job_->open_part(part))) {
      linear.predicted_kl = predicted[linear.key];
      report.linears.push_back(std::move(linear));
    }
  }
  const auto& rows = args_.calibration.rows;
  report.bytes = write_exl2(
      {.files = args_.files,
       .loader = loader_,
       .job = *job_,
       .parts = blocks() + 1,
       .folder = folder,
       .shard_bytes = shard_bytes,
       .quantization_config = {
           {"quant_method", "exl2"},
           {"version", "bitloom"},
           {"bits", args_.bits},
           {"head_bits", args_.head_bits},
           {"calibration",
            {{"rows", rows.size()}, {"length", rows.front().size()}, {"dataset", "user"}}}}});
  return report;
}

Json to_json(const ConvertReport& report) {
  Json linears = Json::array();
  for (const LinearReport& linear : report.linears) {
    linears.push_back({{"key", linear.key},
                       {"bits", linear.bits},
                       {"relative_error", linear.relative_error},
                       {"predicted_kl", linear.predicted_kl}});
  }
  return {{"bits_per_weight", report.bits_per_weight},
          {"predicted_kl", report.predicted_kl},
          {"bound", report.bound},
          {"bytes", report.bytes},
          {"linears", std::move(linears)}};
}

}  // namespace bl
