#pragma once
// Conversion of a model to GPTQ: quantize → write. Every linear of the blocks gets one width;
// embeddings and head stay binary16.

#include <map>
#include <set>
#include <vector>

#include "convert/conversion_source.h"
#include "convert/convert_report.h"
#include "convert/planned_model.h"

namespace bl {

struct GptqConvertArgs {
  ConversionJob job;
  GptqLayout layout = {};
};

// Runs a conversion, or the rest of one. What is finished is in the job's folder.
class GptqConverter {
 public:
  // Checks everything that can be known before time is spent. Throws kUnsupported,
  // kInvalidArgument, kInvalidFile. `args` must outlive this.
  explicit GptqConverter(const GptqConvertArgs& args);

  void quantize();
  // Writes the weights, config.json and quantize_config.json to an existing folder.
  ConvertReport write(const std::filesystem::path& folder, std::uint64_t shard_bytes);
  // The report of a model that was quantized, whose weight files have so many bytes.
  ConvertReport report(std::uint64_t bytes) const;

 private:
  std::size_t blocks() const { return loader_.spec().order.size(); }
  void add(const LoadTask& linear);

  const GptqConvertArgs& args_;
  ModelLoader loader_;
  std::optional<JobFolder> job_;
  std::optional<RateFolder> rate_;
  bool warned_ = false;                          // of a short group
  std::set<std::string> plain_;                  // keys of linears that the format cannot hold
  std::map<std::string, std::int64_t> weights_;  // of each linear
  std::vector<PlannedMatrix> linears_;
};

}  // namespace bl
