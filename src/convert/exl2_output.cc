#include "convert/exl2_output.h"

#include "convert/planned_model.h"
#include "convert/quantized_output.h"

namespace bl {
namespace {

// A stored head takes precedence in any case; the key is for people and other programs.
void untie(Json& config) {
  for (auto& [key, value] : config.items()) {
    if (key == "tie_word_embeddings") value = false;
    if (value.is_object() && value.contains("tie_word_embeddings")) {
      value["tie_word_embeddings"] = false;
    }
  }
}

}  // namespace

std::uint64_t write_exl2(const Exl2OutputArgs& args) {
  Json config = args.files.config;
  config["quantization_config"] = args.quantization_config;
  if (args.untied) untie(config);
  return write_quantized({.files = args.files,
                          .loader = args.loader,
                          .rate = args.rate,
                          .parts = args.parts,
                          .folder = args.folder,
                          .shards = exl2_shards(args.shard_bytes),
                          .config = std::move(config)});
}

}  // namespace bl
