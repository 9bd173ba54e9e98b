#pragma once
// Conversion of a model to EXL2: measure → allocate → quantize → write. One measurement serves any
// number of rates.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/bit_plan.h"
#include "convert/conversion_source.h"
#include "convert/convert_estimate.h"
#include "convert/convert_report.h"
#include "convert/device_plan.h"
#include "convert/planned_model.h"
#include "convert/rate_choice.h"
#include "convert/reference_measurement.h"

namespace bl {

struct ConvertArgs {
  ConversionJob job;
  // A measurement.json to use in place of measuring, ours or the reference's; empty: none.
  std::filesystem::path measurement = {};
  int head_bits = 6;
  std::int64_t measure_rows = 0;        // of the calibration
  std::int64_t sensitivity_tokens = 0;  // 0: default_sensitivity_tokens()
  // Without a set, folds are those of the measurement that is given, or those that a trial finds to
  // help.
  std::optional<FoldSet> folds = FoldSet{};
};

// Runs conversions of one model, or the rest of them. What is finished is in the job's folder. The
// bytes of one rate do not depend on which others are made. A rate is an average of bits per weight
// of the blocks.
class Converter {
 public:
  // Checks everything that can be known before hours are spent. Throws kUnsupported,
  // kInvalidArgument, kInvalidFile. `args` must outlive this.
  explicit Converter(const ConvertArgs& args);

  // The linears that are quantized: those of the blocks in order, and the head, which alone has its
  // groups. Known before measuring.
  const std::vector<PlannedMatrix>& linears() const { return linears_; }
  const ModelLoader& loader() const { return loader_; }
  ConvertEstimate estimate() const;
  // The rates that can be reached with the measurement that is given, or made.
  RateRange rates() const;
  bool is_measured();

  // Chooses the folds, and measures the model that has them.
  void measure();
  const FoldChoice& folds();
  // What was measured, for a file that `measurement` of other conversions may name; the reference
  // reads it, too, where it knows the architecture. Not where a measurement of the reference
  // serves.
  Json measurement_json() const;
  // Measures if that was not done. Throws kInvalidArgument for a rate that cannot be reached.
  const BitPlan& plan(double bits);
  // linears() with the groups of a plan.
  std::vector<PlannedMatrix> matrices(double bits);
  void quantize(double bits);
  // Writes the model to an existing folder, in files whose tensors take at most `shard_bytes`.
  ConvertReport write(double bits, const std::filesystem::path& folder, std::uint64_t shard_bytes);
  // The report of a rate that was quantized. `bytes`: of its weight files.
  ConvertReport report(double bits, std::uint64_t bytes);

 private:
  std::size_t blocks() const { return loader_.spec().order.size(); }
  DeviceSizes device_sizes() const;
  const RateFolder& folder_of(double bits);
  void read_measurement();
  std::vector<FoldSet> possible_folds() const;
  FoldSet measured_folds() const;
  FoldChoice choose_folds();
  void check_values();

  const ConvertArgs& args_;
  ModelLoader loader_;
  std::vector<PlannedMatrix> linears_;
  std::map<std::string, std::int64_t> weights_;  // of each linear, without padding
  std::optional<JobFolder> job_;
  std::optional<ErrorMeasurement> measurement_;
  std::optional<ReferenceMeasurement> reference_;
  std::optional<FoldChoice> folds_;
  std::string measurement_id_ = "own";  // or the hash of the file that was given
  bool checked_ = false;                // check_values()
  std::map<double, BitPlan> plans_;
  std::map<double, RateFolder> rates_;
};

}  // namespace bl
