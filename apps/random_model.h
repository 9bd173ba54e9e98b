#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "format/tensor_source.h"

namespace bl {

// A model with random weights: for speed, since a kernel's time does not depend on the values, or
// for how far kernels are apart (`level`).
struct RandomModel {
  Json config;
  std::shared_ptr<const TensorSource> source;
};

struct RandomModelRequest {
  std::string shape;              // a name of archs/bench/shapes.json, or the path of a config.json
  std::string format;             // "exl2", "gptq", "fp16"
  std::string mix;                // of widths, "4" or "4+"; exl2 only
  std::int64_t group_size = 128;  // gptq only
  // What the model says is compared, so it has to depend little on rounding. Random codes of EXL2
  // weigh more the wider they are, and with scores in thousands the last bit of a key decides which
  // one is seen: weights have one size instead. And codes mean half a step less than nothing on
  // average, by which rows grow alike from block to block until they are one: EXL2's are centred,
  // and norms have weights of both signs.
  bool level = false;
  // Bulk weights are neither made nor held: only a plan will be made of it.
  bool hollow = false;
};

// Throws kInvalidArgument naming what is known. Tensors are made when they are read, so that no
// more than the one being packed exists twice.
RandomModel make_random_model(const RandomModelRequest& request);

struct OpenedModel;
// The same, to be loaded like one on disk; it has no words.
std::shared_ptr<const OpenedModel> open_random_model(const RandomModelRequest& request);

}  // namespace bl
