#pragma once
// Conversion of a model to GPTQ: quantize → write. Every linear of the blocks gets one width;
// embeddings and head stay binary16.

#include <functional>

#include "convert/conversion_source.h"
#include "convert/job_folder.h"
#include "model/model_files.h"

namespace bl {

struct GptqConvertArgs {
  Backend& backend;
  const ModelFiles& files;
  std::filesystem::path archs = {};  // folder of further architectures; empty: none
  const Calibration& calibration;
  std::filesystem::path work;  // the job's folder
  bool restart = false;
  GptqLayout layout = {};
  QuantizeOptions quantize = {};
  // What identifies the source beside its options, such as names, sizes and times of files.
  std::string source;
  // As ConvertArgs::progress, with the phase "quantize".
  std::function<void(const std::string& phase, std::int64_t done, std::int64_t total)> progress;
};

struct GptqReport {
  double bits_per_weight = 0.0;  // of the blocks' linears: codes, scales, zero points, g_idx
  std::vector<LinearReport> linears;
  std::uint64_t bytes = 0;  // of the weight files
};
Json to_json(const GptqReport& report);

// Runs a conversion, or the rest of one. What is finished is in the job's folder.
class GptqConverter {
 public:
  // Checks everything that can be known before time is spent. Throws kUnsupported,
  // kInvalidArgument, kInvalidFile.
  explicit GptqConverter(const GptqConvertArgs& args);

  void quantize();
  // Writes the weights, config.json and quantize_config.json to an existing folder.
  GptqReport write(const std::filesystem::path& folder, std::uint64_t shard_bytes);

 private:
  std::size_t blocks() const { return loader_.spec().order.size(); }

  const GptqConvertArgs& args_;
  ModelLoader loader_;
  std::optional<JobFolder> job_;
  std::optional<RateFolder> rate_;
  double weights_ = 0.0;                // in all linears of the blocks
  std::map<std::string, double> size_;  // weights of each linear, by key
};

}  // namespace bl
