#pragma once
#include "convert/job_folder.h"
#include "format/safetensors_writer.h"
#include "model/model_loader.h"

namespace bl {

struct QuantizedOutputArgs {
  const ModelFiles& files;
  const ModelLoader& loader;
  const RateFolder& rate;
  std::size_t parts = 0;         // of the rate, all finished
  std::filesystem::path folder;  // existing; receives weights and config.json
  ShardOptions shards;
  Json config;  // the text of config.json
  // Tensors have the names of the source's files, and GPTQ matrices that it fuses are fused: what
  // readers of others expect. Otherwise all have the names that the architecture has for them.
  bool as_in_source = false;
};

// Writes the tensors of a rate's parts, all other tensors of the model as binary16, and
// config.json. Returns the bytes of the weight files. Throws kIo, and
// kInvalidArgument for weights beyond what binary16 holds.
std::uint64_t write_quantized(const QuantizedOutputArgs& args);

}  // namespace bl
