#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/tensor_outline.h"
#include "random_model.h"
#include "random_source.h"

namespace bl {

// Adds random linears to a source, in the format that a request names: EXL2 with codes of several
// widths, GPTQ of 4 bits, or plain floats.
class RandomMatrices {
 public:
  // `shapes` is archs/bench/shapes.json. Throws kInvalidArgument, naming what is known, for a
  // format, group size or mix that is not.
  RandomMatrices(RandomSource& source, const RandomModelRequest& request, const Json& shapes);

  bool quantized() const { return format_ == "exl2" || format_ == "gptq"; }
  // The type of everything that is not quantized.
  DType plain_dtype() const { return plain_dtype_; }
  // What config.json says of the format; null for plain floats.
  Json quantization_config() const;

  // The linear's weights, without its bias. Throws kInvalidArgument, naming it, where the format
  // cannot have its width.
  void add(const OutlinedLinear& linear);

  // The standard deviation of compared weights that read so many channels: a product is as large
  // as what it reads, whatever the width.
  static float level_size(std::int64_t in);

 private:
  const Json& mix_of(const OutlinedLinear& linear) const;
  void check_width(const OutlinedLinear& linear, std::int64_t out_multiple) const;
  void add_plain(const OutlinedLinear& linear);
  void add_exl2(const OutlinedLinear& linear);
  void add_gptq(const OutlinedLinear& linear);

  RandomSource& source_;
  std::string format_;
  bool level_;
  std::int64_t group_size_;
  DType plain_dtype_ = DType::kF16;
  Json mix_;
  Json head_mix_;
  Json favored_mix_;  // of the matrices that converters give more bits
  double bits_ = 0;   // that --bpw says
};

}  // namespace bl
