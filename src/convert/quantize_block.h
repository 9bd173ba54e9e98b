#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convert/bit_plan.h"
#include "convert/block_model.h"
#include "convert/linear_rounder.h"
#include "convert/packed_tensors.h"

namespace bl {

struct QuantizeOptions {
  double damping = 0.01;
  int sweeps = 2;
  // How much of the error of what is already quantized the targets correct, from 0 to 1. A linear
  // gets less where all of it would raise the error on the rows that are held out.
  double correction = 1.0;
};

struct QuantizedLinear {
  std::string key;
  PackedLinear packed;
  std::int64_t out = 0;  // without padding
  double error = 0.0;    // the loss per token against the wanted output, after the sweeps
  double power = 0.0;    // the mean square of the wanted output, for a relative error
  // The share of QuantizeOptions::correction that the rows held out allowed.
  double kept_correction = 1.0;
};

// The hidden states of the calibration rows on their two ways through the model: as the original
// has them, and as the model has them whose blocks so far are quantized.
struct TwoPaths {
  std::vector<Chunk> chunks;
  std::size_t held_out = 0;  // of the chunks, the first ones: no weight is fitted to them
  // F32 [tokens, hidden] per chunk, of Products::keep().
  std::vector<Tensor> original;
  std::vector<Tensor> quantized;
  int unreached_experts = 0;  // of the blocks so far, that no token has chosen
};

// Quantizes the linears of a block in the order of its GEMM calls, and moves both paths behind the
// block. The inputs are always those of the quantized path, and the wanted outputs those of the
// original one: where a linear adds to the residual stream, it also makes up for the difference of
// the streams (the aim of GPTAQ, arXiv 2504.02692, and Qronos).
std::vector<QuantizedLinear> quantize_block(ModelPart& block, Backend& backend, TwoPaths& paths,
                                            const LinearRounder& rounder,
                                            const QuantizeOptions& options);

// Moves both paths behind a block whose linears are already quantized.
void replay_block(ModelPart& block, Backend& backend, TwoPaths& paths,
                  const std::map<std::string, WeightMatrix>& matrices);

// Quantizes the head by the final states of the quantized path.
QuantizedLinear quantize_head(ModelPart& ends, Backend& backend, TwoPaths& paths,
                              const GroupList& groups, const QuantizeOptions& options);

}  // namespace bl
