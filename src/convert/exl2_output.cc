#include "convert/exl2_output.h"

#include "convert/planned_model.h"
#include "convert/quantized_output.h"

namespace bl {

std::uint64_t write_exl2(const Exl2OutputArgs& args) {
  Json config = args.files.config;
  config["quantization_config"] = args.quantization_config;
  return write_quantized({.files = args.files,
                          .loader = args.loader,
                          .rate = args.rate,
                          .parts = args.parts,
                          .folder = args.folder,
                          .shards = exl2_shards(args.shard_bytes),
                          .config = std::move(config)});
}

}  // namespace bl
