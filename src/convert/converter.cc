#include "convert/converter.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/exl2_output.h"
#include "convert/head_mix.h"
#include "convert/linear_source.h"
#include "convert/measure_model.h"
#include "convert/quantize_blocks.h"
#include "convert/reference_export.h"

namespace bl {
namespace {

std::int64_t sensitivity_tokens_of(const ConvertArgs& args) {
  if (args.sensitivity_tokens > 0) return args.sensitivity_tokens;
  return default_sensitivity_tokens(args.job.backend);
}

// Everything that the measurement depends on.
Json describe(const ConvertArgs& args) {
  return {{"version", 6},
          {"model", args.job.source},
          {"device", kind_of_device(args.job.backend)},
          {"calibration", hash_of(args.job.calibration).hex()},
          {"measure_rows", args.measure_rows},
          {"sensitivity_tokens", sensitivity_tokens_of(args)},
          {"folds", args.folds ? name_of(*args.folds) : "auto"},
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

// Throws where a measurement, of the file `what`, is not of just these linears; those with groups
// are none that bits are planned for.
void check_is_of(const ErrorMeasurement& measurement, std::span<const PlannedMatrix> linears,
                 const std::string& what) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sizes;
  for (const PlannedMatrix& linear : linears) {
    if (linear.groups.empty()) sizes[linear.key] = {linear.in, linear.out};
  }
  for (const LinearMeasurement& linear : measurement.linears) {
    const auto found = sizes.find(linear.key);
    if (found == sizes.end() || found->second != std::pair(linear.in, linear.out)) {
      fail(ErrorCode::kInvalidFile, "{} is of another model, which has a {} [{}, {}]", what,
           linear.key, linear.out, linear.in);
    }
    sizes.erase(found);
  }
  if (!sizes.empty()) {
    fail(ErrorCode::kInvalidFile, "{} is of another model, which has no {}", what,
         sizes.begin()->first);
  }
}

// `what` asks for these folds.
void check_folds(const ModelLoader& loader, const FoldSet& kinds, const std::string& what) {
  for (const FoldKind kind : kinds) {
    const std::string refusal = fold_refusal(loader, kind);
    if (refusal.empty()) continue;
    fail(ErrorCode::kInvalidArgument,
         "{}: this model cannot have the fold \"{}\", because {}; --fold auto tries those that it "
         "can have",
         what, name_of(kind), refusal);
  }
}

std::int64_t slots_of(const GroupList& groups) {
  std::int64_t slots = 0;
  for (const SlotGroup& group : groups) slots += group.slots;
  return slots;
}

}  // namespace

Converter::Converter(const ConvertArgs& args)
    : args_(args),
      loader_(args.job.backend, args.job.files, conversion_load_options(args.job.archs)) {
  check_conversion_source(loader_, args.job.calibration);
  const auto add = [&](const LoadRange& range, const GroupList& groups) {
    for (const LoadTask* task : quantized_linears(loader_, range)) {
      const auto& work = std::get<MatrixWork>(task->work);
      linears_.push_back({.key = task->key,
                          .in = work.in,
                          .out = padded_outputs(work.out),
                          .groups = groups,
                          .reference = reference_name(task->target)});
      weights_[task->key] = work.in * work.out;
    }
  };
  for (const std::int32_t layer : loader_.spec().order) add(LoadRange::block(layer), {});
  add(kEnds, head_groups(args.head_bits, loader_.spec().hidden));
  if (!args.job.rehearsed) warn_of_plain_linears(loader_);
  check_folds(loader_, args.folds.value_or(FoldSet{}), "--fold");
  if (!args.measurement.empty()) read_measurement();
  job_.emplace(args.job.work, describe(args), args.job.restart);
  plan_device(args.job.backend, device_sizes(), args.job.device_memory);
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
    check_is_of(*measurement_, linears_, what);
  }
  if (args_.folds && *args_.folds != measured_folds()) {
    fail(ErrorCode::kInvalidArgument,
         "{} is of the model with the folds \"{}\", and --fold asks for \"{}\"; leave --fold out, "
         "or measure again",
         what, name_of(measured_folds()), name_of(*args_.folds));
  }
}

// The folds that the model of a given measurement had; the reference knows none.
FoldSet Converter::measured_folds() const { return measurement_ ? measurement_->folds : FoldSet{}; }

// All sets of folds that the model can have, but for none.
std::vector<FoldSet> Converter::possible_folds() const {
  std::vector<FoldSet> sets{{}};
  for (const FoldKind kind : kFoldKinds) {
    if (!fold_refusal(loader_, kind).empty()) continue;
    for (std::size_t i = sets.size(); i > 0; --i) {
      sets.push_back(sets[i - 1]);
      sets.back().insert(kind);
    }
  }
  sets.erase(sets.begin());
  return sets;
}

FoldChoice Converter::choose_folds() {
  if (args_.folds) return {*args_.folds};
  if (measurement_) return {measurement_->folds};
  const std::vector<FoldSet> sets = possible_folds();
  if (reference_ || sets.empty()) return {};
  return try_folds({.job = args_.job,
                    .loader = loader_,
                    .rows = (args_.measure_rows + 1) / 2,
                    .sets = sets,
                    .progress = [&](std::int64_t done, std::int64_t total) {
                      if (args_.job.progress) args_.job.progress("fold", done, total);
                    }});
}

const FoldChoice& Converter::folds() {
  if (folds_) return *folds_;
  folds_ = job_->folds();
  if (!folds_) {
    folds_ = choose_folds();
    // The job would choose others without the measurement that was given.
    if (args_.measurement.empty()) job_->save(*folds_);
  }
  if (!args_.measurement.empty() && folds_->kept != measured_folds()) {
    fail(
        ErrorCode::kInvalidArgument,
        "{} holds a model with the folds \"{}\", and {} is of one with \"{}\"; use another folder, "
        "or --no_resume to start again in this one",
        job_->path().string(), name_of(folds_->kept), args_.measurement.string(),
        name_of(measured_folds()));
  }
  check_folds(loader_, folds_->kept, job_->path().string());
  if (!folds_->kept.empty()) {
    loader_.fold(make_folds(args_.job.files, loader_, folds_->kept));
  }
  return *folds_;
}

RateRange Converter::rates() const {
  return reference_ ? reachable_rates(*reference_) : reachable_rates(linears_);
}

bool Converter::is_measured() {
  if (!reference_ && !measurement_) {
    measurement_ = job_->measurement();
    if (measurement_) check_is_of(*measurement_, linears_, job_->path().string());
  }
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
                              .sensitivity_tokens = sensitivity_tokens_of(args_),
                              .may_fold = !args_.folds || !args_.folds->empty(),
                              .sweeps = args_.job.quantize.sweeps});
}

// Once in a job, before hours are spent.
void Converter::check_values() {
  if (!std::exchange(checked_, true)) bl::check_values(args_.job, loader_);
}

void Converter::measure() {
  const FoldSet& kept = folds().kept;
  if (is_measured()) return;
  check_values();
  measurement_ = measure_model({.loader = loader_,
                                .backend = args_.job.backend,
                                .calibration = args_.job.calibration,
                                .rows = args_.measure_rows,
                                .damping = args_.job.quantize.damping,
                                .sensitivity_tokens = sensitivity_tokens_of(args_),
                                .progress = [&](std::int64_t done, std::int64_t total) {
                                  if (args_.job.progress)
                                    args_.job.progress("measure", done, total);
                                }});
  measurement_->folds = kept;
  job_->save(measurement_json());
}

Json Converter::measurement_json() const {
  BL_CHECK(measurement_);
  Json json = to_json(*measurement_);
  // The reference's converter would take errors of folded weights for those of the original.
  if (measurement_->folds.empty()) json.update(reference_measurement_json(*measurement_, loader_));
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
  folds();
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
  report.folds = folds();
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
  Json calibration = {{"rows", rows.size()},
                      {"length", rows.front().size()},
                      {"dataset", args_.job.calibration.dataset}};
  Json config = {{"quant_method", "exl2"},
                 {"version", "bitloom"},
                 {"bits", bits},
                 {"head_bits", args_.head_bits},
                 {"calibration", std::move(calibration)}};
  const FoldSet& kept = folds().kept;
  if (!kept.empty()) config["folds"] = name_of(kept);
  const std::uint64_t bytes = write_exl2({.files = args_.job.files,
                                          .loader = loader_,
                                          .rate = folder_of(bits),
                                          .parts = blocks() + 1,
                                          .folder = folder,
                                          .shard_bytes = shard_bytes,
                                          .quantization_config = std::move(config),
                                          .untied = kept.contains(FoldKind::kResidual)});
  return report(bits, bytes);
}

}  // namespace bl
