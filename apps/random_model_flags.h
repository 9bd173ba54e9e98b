#pragma once
#include <fmt/format.h>

#include <memory>
#include <string>

#include "random_model.h"

namespace bl {

// The options of commands that measure models of random weights too.
struct RandomModelFlags {
  std::string random;
  std::string format = "exl2";
  std::string mix = "4";
  std::int64_t group_size = 128;

  template <class V>
  void visit(V&& v) {
    v.group("Random model (instead of -m)");
    v(random,
      {"--random", "SHAPE", "a shape of archs/bench/shapes.json or the path of a config.json"});
    v(format, {"--format", "NAME", "exl2, gptq or fp16"});
    v(mix,
      {"--bpw", "MIX",
       "exl2: 2.5, 3, 4, 5 or 6 bits a weight, or one of these with +: v and up have more of the "
       "widest codes, and are cut otherwise than q and gate, as converters do it"});
    v(group_size, {"--group-size", "N", "gptq: channels a group, 32, 64 or 128"});
  }

  bool wanted() const { return !random.empty(); }
  std::string name() const {
    const std::string of_format = format == "exl2"   ? "exl2 " + mix
                                  : format == "gptq" ? fmt::format("gptq g{}", group_size)
                                                     : format;
    return fmt::format("random {} {}", random, of_format);
  }
  std::shared_ptr<const OpenedModel> open() const { return open(random); }
  // Of another shape, but the same format.
  std::shared_ptr<const OpenedModel> open(const std::string& shape) const {
    return open_random_model(request_for(shape));
  }
  // Not for its speed: what it says is compared.
  std::shared_ptr<const OpenedModel> open_level() const {
    RandomModelRequest request = request_for(random);
    request.level = true;
    return open_random_model(request);
  }
  // Without its bulk of weights, to be planned for.
  std::shared_ptr<const OpenedModel> open_hollow() const {
    RandomModelRequest request = request_for(random);
    request.hollow = true;
    return open_random_model(request);
  }

 private:
  RandomModelRequest request_for(const std::string& shape) const {
    RandomModelRequest request;
    request.shape = shape;
    request.format = format;
    request.mix = mix;
    request.group_size = group_size;
    return request;
  }
};

}  // namespace bl
