#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "format/tensor_source.h"

namespace bl {

struct RandomModelRequest {
  std::string shape;              // a name of archs/bench/shapes.json, or the path of a config.json
  std::string format;             // "exl2", "gptq", "bf16", "fp16", "fp32"
  std::string mix;                // bits a weight: "4", "4+", "3.7"; exl2 only
  std::int64_t group_size = 128;  // gptq only
  std::int64_t layers = 0;        // the first so many; 0: all
  std::filesystem::path archs;    // folder of further architectures; empty: none
  // The logits will be compared, so they have to depend little on rounding. Weights get one size
  // whatever their width, since with scores of attention in thousands the last bit of a key decides
  // which one is seen. Codes are centered and norms have both signs: random codes mean half a step
  // less than nothing on average, by which rows grow alike from block to block until they are one.
  // Tokens choose experts with a margin (RoutingCode).
  bool level = false;
  // Bulk weights are neither made nor held, since only a plan will be made of the model.
  bool hollow = false;
};

// What was made.
struct RandomModelSummary {
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;     // of all tensors
  double bits_per_weight = 0;  // in the linears of the blocks

  std::string text() const;  // one line
  Json json() const;
};

// A model of random weights: for its speed, since a kernel's time does not depend on the values, or
// for how far kernels are apart (`level`).
struct RandomModel {
  Json config;
  std::string config_file;  // for messages
  std::shared_ptr<const TensorSource> source;
  RandomModelSummary summary;
};

// Throws kInvalidArgument naming what is known, and as build_model_spec does. Tensors are made when
// they are read, so that no more than the one being packed exists twice.
RandomModel make_random_model(const RandomModelRequest& request);

struct OpenedModel;
// The model as one on disk would be opened, and what there is to say of it; it has no words.
struct OpenedRandomModel {
  std::shared_ptr<const OpenedModel> opened;
  RandomModelSummary summary;
};
OpenedRandomModel open_random_model(const RandomModelRequest& request);

}  // namespace bl
