#pragma once
// The tensors that a checkpoint of a model consists of, from its description alone: no file is
// read. For whoever makes a checkpoint rather than loads one.
//
// Goals: names and shapes come from ModelSpec and ArchSpec, so that a new architecture needs no
// list of its own; what is listed loads. Non-goals: the other layouts that loading accepts too,
// such as experts stacked in one tensor, and layers for multi-token prediction.

#include <cstdint>
#include <string>
#include <vector>

#include "model/hf_config.h"
#include "model/model_spec.h"

namespace bl {

enum class LinearRole : std::uint8_t {
  kQuery,
  kKey,
  kValue,
  kQueryKeyValue,
  kAttentionGate,
  kAttentionOut,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kRouter,
  kSharedGate,
  kCombine,  // of a draft: what reads the states of another model
  kHead,
};

// What a router reads: the residual stream as it is, or a norm of it, with weights or without.
enum class RouterInput : std::uint8_t { kStream, kNormalised, kWeighted };

struct OutlinedLinear {
  LinearRole role = LinearRole::kHead;
  std::string key;  // without ".weight"
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool transposed = false;  // stored [in, out] where the weights are plain
  bool bias = false;
  std::int64_t layer = -1;  // block that it is in; −1: none
  // Set for a router, whose outputs are the experts:
  std::int64_t per_token = 0;  // experts of a token
  RouterInput router_input = RouterInput::kStream;

  // Quantized checkpoints keep the small matrices that choose experts in plain floats.
  bool quantizable() const {
    return role != LinearRole::kRouter && role != LinearRole::kSharedGate;
  }
};

// What a norm reads.
enum class NormInput : std::uint8_t {
  kStream,  // the residual stream, all of its channels
  kOther,   // heads, or what a layer adds to the stream
};

struct OutlinedNorm {
  std::string weight;  // names of tensors
  std::string bias;    // empty: none
  std::int64_t width = 0;
  bool unit_offset = false;  // the file holds w where 1 + w is meant
  NormInput input = NormInput::kOther;
  // For a norm of queries: the root mean square of scores where elements of heads are about 1.
  float score_size = 1.0f;
};

// A table of one row a token or a position, as plain floats.
struct OutlinedTable {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool of_positions = false;
};

enum class VectorRole : std::uint8_t { kSinks, kSelectionBias, kExpertScale, kOutputScale };

struct OutlinedVector {
  VectorRole role = VectorRole::kSinks;
  std::string name;
  std::int64_t size = 0;
};

struct TensorOutline {
  std::vector<OutlinedTable> tables;
  std::vector<OutlinedLinear> linears;
  std::vector<OutlinedNorm> norms;
  std::vector<OutlinedVector> vectors;
};

// Where an architecture has several names for a tensor, the first. `quantized`: a linear whose
// outputs are interleaved is listed as its parts, as EXL2 files have them.
// `config` is the one that `spec` was built from. Throws kInvalidFile as build_model_spec does.
TensorOutline outline_tensors(const ModelSpec& spec, HfConfig config, bool quantized);

}  // namespace bl
