#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/job_folder.h"
#include "convert/output_quality.h"

namespace bl {

// What became of a model at one rate.
struct ConvertReport {
  double target_bits = 0.0;      // what was asked for
  double bits_per_weight = 0.0;  // of the blocks
  double predicted_kl = 0.0;
  double bound = 0.0;
  std::vector<LinearReport> linears;  // of the blocks, then the head
  std::uint64_t bytes = 0;            // of the weight files
  OutputQuality quality;
};

// Whether `predicted_kl` and `bound` are known; a measurement of the reference predicts neither.
bool has_prediction(const ConvertReport& report);

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
// the model or the conversion does not work. Empty where nothing is.
std::string perplexity_warning(const ConvertReport& report);

Json to_json(const ConvertReport& report);
// Tables and a summary. `folder`: where the model is.
std::string to_text(const ConvertReport& report, const std::string& folder);

}  // namespace bl
