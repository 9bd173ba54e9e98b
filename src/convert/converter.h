#pragma once
// Conversion of a model to EXL2: measure → allocate → quantize → write.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convert/bit_plan.h"
#include "convert/calibration.h"
#include "convert/job_folder.h"
#include "convert/quantize_block.h"
#include "model/model_files.h"
#include "ops/backend.h"

namespace bl {

struct ConvertArgs {
  Backend& backend;
  const ModelFiles& files;
  std::filesystem::path archs = {};  // folder of further architectures; empty: none
  const Calibration& calibration;
  std::filesystem::path work;  // the job's folder
  bool restart = false;
  double bits = 4.0;
  int head_bits = 6;
  std::int64_t measure_rows = 0;  // of the calibration
  QuantizeOptions quantize = {};
  // What identifies the source beside its options, such as names, sizes and times of files.
  std::string source;
  // Called with the phase ("measure", "quantize"), and steps done and in all; may throw to
  // interrupt, which leaves a job that can be continued.
  std::function<void(const char* phase, std::int64_t done, std::int64_t total)> progress;
};

struct ConvertReport {
  double bits_per_weight = 0.0;
  double predicted_kl = 0.0;
  double bound = 0.0;
  std::vector<LinearReport> linears;  // of the blocks, then the head
  std::uint64_t bytes = 0;            // of the weight files
};

// Runs a conversion, or the rest of one. What is finished is in the job's folder.
class Converter {
 public:
  // Checks everything that can be known before hours are spent. Throws kUnsupported,
  // kInvalidArgument, kInvalidFile.
  explicit Converter(const ConvertArgs& args);

  const ErrorMeasurement& measure();
  const BitPlan& plan();
  void quantize();
  // Writes the model to an existing folder.
  ConvertReport write(const std::filesystem::path& folder, std::uint64_t shard_bytes);

 private:
  std::size_t blocks() const { return loader_.spec().order.size(); }
  std::string head_key() const;

  const ConvertArgs& args_;
  ModelLoader loader_;
  std::optional<JobFolder> job_;
  std::optional<ErrorMeasurement> measurement_;
  std::optional<BitPlan> plan_;
};

Json to_json(const ConvertReport& report);

}  // namespace bl
