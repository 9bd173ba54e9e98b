#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "random_model.h"
#include "usage_error.h"

namespace bl {

// The options of commands that measure models of random weights too.
struct RandomModelFlags {
  std::string random;
  std::string format = "exl2";
  std::string mix = "4";
  std::int64_t group_size = 128;
  std::int64_t layers = 0;

  template <class V>
  void visit(V&& v) {
    v.group("Random model (instead of -m)");
    v(random, {"--random", "SHAPE",
               "make up the weights of a model: the path of a Hugging Face config.json of any "
               "known architecture, or a name in archs/bench/shapes.json, such as llama3-8b"});
    v(format, {"--format", "NAME", "format of the weights: exl2, gptq (4 bits), bf16, fp16, fp32"});
    v(mix,
      {"--bpw", "BITS",
       "exl2: bits a weight, 2 to 8, made of two or three code widths. A '+' behind it, as in 4+, "
       "gives value and up matrices more of the widest codes, as converters do"});
    v(group_size, {"--group-size", "N", "gptq: channels that share a scale, 32, 64 or 128"});
    v(layers, {"--layers", "N", "only the first N layers of the model", "all"});
  }

  bool wanted() const { return !random.empty(); }
  void check() const {
    if (layers < 0) fail_usage("--layers: {} should be 1 or more", layers);
    if (layers > 0 && !wanted()) fail_usage("--layers goes with --random SHAPE");
  }
  std::string name() const {
    const std::string of_format = format == "exl2"   ? "exl2 " + mix
                                  : format == "gptq" ? fmt::format("gptq g{}", group_size)
                                                     : format;
    const std::string cut = layers > 0 ? fmt::format(", {} layers", layers) : std::string();
    return fmt::format("random {} {}{}", random, of_format, cut);
  }
  // `archs`: folder of further architectures, or empty.
  OpenedRandomModel open(const std::filesystem::path& archs) const {
    return open_random_model(request_for(random, archs));
  }
  // A model of another shape in the same format, with all its layers.
  OpenedRandomModel open(const std::string& shape, const std::filesystem::path& archs) const {
    RandomModelRequest request = request_for(shape, archs);
    request.layers = 0;
    return open_random_model(request);
  }
  // For comparing its logits, not for its speed.
  OpenedRandomModel open_level(const std::filesystem::path& archs) const {
    RandomModelRequest request = request_for(random, archs);
    request.level = true;
    return open_random_model(request);
  }
  // For a plan alone: bulk weights are not there.
  OpenedRandomModel open_hollow(const std::filesystem::path& archs) const {
    RandomModelRequest request = request_for(random, archs);
    request.hollow = true;
    return open_random_model(request);
  }

 private:
  RandomModelRequest request_for(const std::string& shape,
                                 const std::filesystem::path& archs) const {
    RandomModelRequest request;
    request.shape = shape;
    request.format = format;
    request.mix = mix;
    request.group_size = group_size;
    request.layers = layers;
    request.archs = archs;
    return request;
  }
};

}  // namespace bl
