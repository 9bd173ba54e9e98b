#pragma once
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "convert/quantize_block.h"

namespace bl {

// How far the quantized model is from the original, on the rows that are held out. On the rows that
// the weights were fitted to, all figures would be lower, by far where there are few tokens: with
// 2048 for a model of 1536 inputs, 4 bits gave a KL divergence of 0.001 there and of 0.36 on other
// text.
struct OutputQuality {
  // Per block: the mean square of what the residual stream behind it differs by, relative to the
  // mean square of the original stream.
  std::vector<double> block_errors = {};
  // The rest is of the whole model, at `positions` positions spread evenly over the rows.
  std::int64_t positions = 0;
  double original_perplexity = 0.0;  // exp(−mean log-probability of the next token)
  double quantized_perplexity = 0.0;
  double kl = 0.0;  // mean D(original ‖ quantized), in nats
  // The standard error of `kl`, as if positions were independent.
  double kl_error = 0.0;
};

Json to_json(const OutputQuality& quality);
// Throws kInvalidFile for other JSON. `what` names the file.
OutputQuality quality_from_json(const Json& json, const std::string& what);

// The error of the block that both paths are behind, on the rows held out.
double stream_error(Backend& backend, const TwoPaths& paths);

// The positions that conversions compare outputs at.
inline constexpr std::int64_t kComparedPositions = 2048;

// Runs the head over a sample of at most kComparedPositions positions of the rows held out, on both
// paths, which are behind the last block. `head`: the quantized head, which the quantized path
// gets; null where the head stays as it is. Fills everything but block_errors.
OutputQuality compare_outputs(ModelPart& ends, Backend& backend, const TwoPaths& paths,
                              const QuantizedLinear* head);

}  // namespace bl
