#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/calibration.h"
#include "convert/job_folder.h"
#include "convert/output_quality.h"

namespace bl {

// What became of a model at one rate.
struct ConvertReport {
  std::string device;            // that computed it, such as "AVX2, 2 threads"
  double target_bits = 0.0;      // what was asked for; GPTQ: the width
  double bits_per_weight = 0.0;  // of the blocks
  // Not a number where nothing is predicted: for GPTQ, and with a measurement of the reference.
  double predicted_kl = std::numeric_limits<double>::quiet_NaN();
  double bound = std::numeric_limits<double>::quiet_NaN();
  std::vector<LinearReport> linears;  // of the blocks, then a quantized head
  std::uint64_t bytes = 0;            // of the weight files
  std::int64_t fitted_tokens = 0;     // of the calibration
  std::int64_t held_out_rows = 0;     // that `quality` is of
  std::int64_t held_out_tokens = 0;
  bool self_made = false;  // whether the model itself has written the calibration
  OutputQuality quality;
};

struct ReportSource {
  const RateFolder& folder;                            // finished
  std::size_t parts = 0;                               // of the folder
  const std::map<std::string, std::int64_t>& weights;  // of each linear, without padding
  const Calibration& calibration;
  std::uint64_t bytes = 0;  // of the weight files
};
// What a finished folder tells: all but target_bits and predictions.
ConvertReport report_of(const ReportSource& source);

// Whether `predicted_kl` and `bound` are known.
bool has_prediction(const ConvertReport& report);

// How many linears had less of their correction than was asked for, because all of it would have
// raised the error on the rows held out.
std::int64_t weakened_corrections(const ConvertReport& report);

// A block, or the head, which is the last.
struct BlockReport {
  std::string name;  // "0", "1", …, "head"
  double bits = 0.0;
  // The error of the residual stream behind a block (OutputQuality), or of the head's own output.
  double relative_error = 0.0;
};
std::vector<BlockReport> blocks_of(const ConvertReport& report);

// The part that linears of one kind ("mlp.down_proj") have in the predicted KL divergence.
struct KindReport {
  std::string kind;
  double predicted_kl = 0.0;
};
// The largest first. The head, for which nothing is predicted, is left out.
std::vector<KindReport> kinds_of(const ConvertReport& report);

// What a user should know about the perplexities: above 30 something is wrong, and in the thousands
// the model or the conversion does not work. What the model itself has written is as surprising to
// it as it draws, so that only what conversion adds counts there. Empty where nothing is to be
// said.
std::string perplexity_warning(const ConvertReport& report);

Json to_json(const ConvertReport& report);
// Tables and a summary. `folder`: where the model is.
std::string to_text(const ConvertReport& report, const std::string& folder);

}  // namespace bl
