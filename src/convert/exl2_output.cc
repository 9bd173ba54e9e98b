#include "convert/exl2_output.h"

#include "convert/quantized_output.h"

namespace bl {

std::uint64_t write_exl2(const Exl2OutputArgs& args) {
  Json config = args.files.config;
  config["quantization_config"] = args.quantization_config;
  return write_quantized(
      {.files = args.files,
       .loader = args.loader,
       .job = args.job,
       .parts = args.parts,
       .folder = args.folder,
       .shards = {.base_name = "output", .max_bytes = args.shard_bytes, .write_index = false},
       .config = std::move(config)});
}

}  // namespace bl
