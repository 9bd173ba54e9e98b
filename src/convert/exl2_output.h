#pragma once
#include "convert/job_folder.h"
#include "model/model_loader.h"

namespace bl {

struct Exl2OutputArgs {
  const ModelFiles& files;
  const ModelLoader& loader;
  const RateFolder& rate;
  std::size_t parts = 0;         // blocks and head
  std::filesystem::path folder;  // existing; receives weights and config.json
  std::uint64_t shard_bytes = 0;
  Json quantization_config;
  bool untied = false;  // whether embedding and head are no longer the same, if they were
};

// Writes the finished parts of a rate, and all other tensors of the model as binary16, as an EXL2
// model. Returns the bytes of its weight files. Throws kIo, and
// kInvalidArgument for weights beyond what binary16 holds.
std::uint64_t write_exl2(const Exl2OutputArgs& args);

}  // namespace bl
