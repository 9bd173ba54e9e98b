#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "model/model_files.h"
#include "ops/backend.h"

namespace bl {

struct LoraMergeArgs {
  const ModelFiles& base;
  std::filesystem::path archs = {};  // folder of further architectures; empty: none
  struct Adapter {
    std::filesystem::path folder;
    double weight = 1;
  };
  std::vector<Adapter> adapters = {};
  std::filesystem::path folder = {};  // an existing folder that receives the model
  std::uint64_t shard_bytes = std::uint64_t{8} << 30;
  // Called from time to time by the calling thread with bytes of weights written so far and in all.
  // May throw to interrupt.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct LoraMergeResult {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::int64_t changed = 0;  // tensors that adapters changed
};

// Writes the weights of a model with adapters folded in, W + Σ weight · scale · B · A, and its
// config.json. Plain tensors keep their type; quantized matrices become fp16. A head that is tied
// to the embedding becomes a tensor of its own if an adapter changes only one of the two. Holds one
// matrix in memory at a time. Only the threads of `backend` are used; a backend that reorders
// hidden channels (Backend::reorders_hidden) is a bug here.
LoraMergeResult merge_lora(Backend& backend, const LoraMergeArgs& args);

}  // namespace bl
