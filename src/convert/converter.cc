#include "convert/converter.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/exl2_output.h"
#include "convert/head_mix.h"
#include "convert/measure_model.h"
#include "convert/quantize_blocks.h"
#include "convert/reference_export.h"

namespace bl {
namespace {

// Everything that the measurement depends on.
Json describe(const ConvertArgs& args) {
  return {{"version", 3},
          {"model", args.job.source},
          {"calibration", hash_of(args.job.calibration).hex()},
          {"measure_rows", args.measure_rows},
          {"damping", args.job.quantize.damping}};
}

// What the bytes of one rate depend on beside that.
Json describe_rate(const ConvertArgs& args, const std::string& measurement, double bits) {
  return {{"bits", bits},
          {"measurement", measurement},
          {"head_bits", args.head_bits},
          {"sweeps", args.job.quantize.sweeps},
          {"correction", args.job.quantize.correction}};
}

std::int64_t slots_of(const GroupList& groups) {
  std::int64_t slots = 0;
  for (const SlotGroup& group : groups) slots += group.slots;
  return slots;
}

}  // namespace

Converter::Converter(const ConvertArgs& args)
    : args_(args), loader_(args.job.backend, args.job.files, load_options_of(args.job)) {
  check_conversion_source(loader_, args.job.calibration);
  const auto add = [&](const LoadRange& range, const GroupList& groups) {
    for (const LoadTask* task : quantized_linears(loader_, range)) {
      const auto& work = std::get<MatrixWork>(task->work);
      linears_.push_back({.key = task->key,
                          .in = work.in,
                          .out = (work.out + 31) / 32 * 32,
                          .groups = groups,
                          .reference = reference_name(task->target)});
      weights_[task->key] = work.in * work.out;
    }
  };
  for (const std::int32_t layer : loader_.spec().order) add(LoadRange::block(layer), {});
  add(kEnds, head_groups(args.head_bits, loader_.spec().hidden));
  warn_of_plain_linears(loader_);
  if (!args.measurement.empty()) read_measurement();
  job_.emplace(args.job.work, describe(args), args.job.restart);
  plan_device(args.job.backend, device_sizes());
}

DeviceSizes Converter::device_sizes() const {
  DeviceSizes sizes =
      bl::device_sizes(args_.job, loader_, std::span(linears_).first(linears_.size() - 1));
  sizes.head_out = linears_.back().out;
  return sizes;
}

void Converter::read_measurement() {
  const std::string what = args_.measurement.string();
  const std::string text = read_file(args_.measurement);
  SipHash hash;
  hash.update(std::as_bytes(std::span(text)));
  measurement_id_ = hash.finish().hex();
  const Json json = parse_json(text, what);
  if (is_reference_measurement(json)) {
    reference_ = reference_measurement_from_json(json, linears_, what);
  } else {
    measurement_ = measurement_from_json(json, what);
  }
}

RateRange Converter::rates() const {
  return reference_ ? reachable_rates(*reference_) : reachable_rates(linears_);
}

bool Converter::is_measured() {
  if (!reference_ && !measurement_) measurement_ = job_->measurement();
  return reference_ || measurement_;
}

ConvertEstimate Converter::estimate() const {
  const Calibration& calibration = args_.job.calibration;
  std::int64_t measured = 0;
  for (std::int64_t row = 0; row < args_.measure_rows; ++row) {
    measured += std::ssize(calibration.rows[static_cast<std::size_t>(row)]);
  }
  return estimate_conversion({.loader = loader_,
                              .backend = args_.job.backend,
                              .device = device_sizes(),
                              .linears = linears_,
                              .tokens = calibration.tokens() + calibration.held_out_tokens(),
                              .measured_tokens = measured,
                              .sweeps = args_.job.quantize.sweeps});
}

// Once in a job, before hours are spent.
void Converter::check_values() {
  if (!std::exchange(checked_, true)) bl::check_values(args_.job, loader_);
}

void Converter::measure() {
  if (is_measured()) return;
  check_values();
  measurement_ = measure_model({.loader = loader_,
                                .backend = args_.job.backend,
                                .calibration = args_.job.calibration,
                                .rows = args_.measure_rows,
                                .damping = args_.job.quantize.damping,
                                .progress = [&](std::int64_t done, std::int64_t total) {
                                  if (args_.job.progress)
                                    args_.job.progress("measure", done, total);
                                }});
  job_->save(measurement_json());
}

Json Converter::measurement_json() const {
  BL_CHECK(measurement_);
  Json json = to_json(*measurement_);
  json.update(reference_measurement_json(*measurement_, loader_));
  return json;
}

const BitPlan& Converter::plan(double bits) {
  const auto found = plans_.find(bits);
  if (found != plans_.end()) return found->second;
  measure();
  BitPlan plan = reference_ ? plan_bits(*reference_, bits) : plan_bits(*measurement_, bits);
  return plans_.emplace(bits, std::move(plan)).first->second;
}

std::vector<PlannedMatrix> Converter::matrices(double bits) {
  std::map<std::string, const GroupList*> groups;
  for (const PlannedLinear& linear : plan(bits).linears) groups[linear.key] = &linear.groups;
  std::vector<PlannedMatrix> matrices = linears_;
  for (PlannedMatrix& matrix : matrices) {
    if (!matrix.groups.empty()) continue;
    const auto own = groups.find(matrix.key);
    if (own == groups.end() || slots_of(*own->second) != matrix.in) {
      fail(ErrorCode::kInvalidFile, "{}: the measurement is not of this model, by {}",
           job_->path().string(), matrix.key);
    }
    matrix.groups = *own->second;
  }
  return matrices;
}

const RateFolder& Converter::folder_of(double bits) {
  const auto found = rates_.find(bits);
  if (found != rates_.end()) return found->second;
  return rates_.emplace(bits, RateFolder(*job_, bits, describe_rate(args_, measurement_id_, bits)))
      .first->second;
}

void Converter::quantize(double bits) {
  const RateFolder& rate = folder_of(bits);
  const std::size_t parts = blocks() + 1;
  if (rate.is_finished()) return;
  check_values();
  std::map<std::string, GroupList> groups;
  for (const PlannedMatrix& matrix : matrices(bits)) groups[matrix.key] = matrix.groups;
  const Exl2Rounder rounder(groups, args_.job.quantize.sweeps);
  const auto report = [&, phase = "quantize " + rate_name(bits)](std::size_t done) {
    if (!args_.job.progress) return;
    args_.job.progress(phase, static_cast<std::int64_t>(done), static_cast<std::int64_t>(parts));
  };
  TwoPaths paths = start_paths(loader_, args_.job.backend, args_.job.calibration);
  std::vector<double> block_errors = quantize_blocks(
      {loader_, args_.job.backend, rounder, rate, args_.job.quantize, report}, paths);
  report(blocks());
  ModelPart ends = ModelPart::ends(loader_, args_.job.backend);
  std::vector<QuantizedLinear> last;
  last.push_back(
      quantize_head(ends, args_.job.backend, paths, linears_.back().groups, args_.job.quantize));
  OutputQuality quality = compare_outputs(ends, args_.job.backend, paths, &last.front());
  quality.block_errors = std::move(block_errors);
  rate.save_part(blocks(), last);
  rate.finish(quality);
  report(parts);
}

ConvertReport Converter::report(double bits, std::uint64_t bytes) {
  const BitPlan& allocation = plan(bits);
  ConvertReport report = report_of({.folder = folder_of(bits),
                                    .parts = blocks() + 1,
                                    .weights = weights_,
                                    .calibration = args_.job.calibration,
                                    .bytes = bytes});
  report.device = args_.job.backend.description();
  report.target_bits = bits;
  report.bits_per_weight = allocation.bits_per_weight;
  report.predicted_kl = allocation.predicted_kl;
  report.bound = allocation.bound;
  std::map<std::string, double> predicted;
  for (const PlannedLinear& linear : allocation.linears) {
    predicted[linear.key] = linear.predicted_kl;
  }
  for (LinearReport& linear : report.linears) linear.predicted_kl = predicted[linear.key];
  return report;
}

ConvertReport Converter::write(double bits, const std::filesystem::path& folder,
                               std::uint64_t shard_bytes) {
  const auto& rows = args_.job.calibration.rows;
  const std::uint64_t bytes =
      write_exl2({.files = args_.job.files,
                  .loader = loader_,
                  .rate = folder_of(bits),
                  .parts = blocks() + 1,
                  .folder = folder,
                  .shard_bytes = shard_bytes,
                  .quantization_config = {{"quant_method", "exl2"},
                                          {"version", "bitloom"},
                                          {"bits", bits},
                                          {"head_bits", args_.head_bits},
                                          {"calibration",
                                           {{"rows", rows.size()},
                                            {"length", rows.front().size()},
                                            {"dataset", args_.job.calibration.dataset}}}}});
  return report(bits, bytes);
}

}  // namespace bl
