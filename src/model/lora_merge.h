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
  std::filesystem::path folder = {};  // is there, and is filled
  std::uint64_t shard_bytes = std::uint64_t{8} << 30;
  // Called now and then from the calling thread, bytes of weights written so far and in all. May
  // throw (an interrupt).
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct LoraMergeResult {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::int64_t changed = 0;  // tensors that adapters were added to
};

// Writes the weights of a model with adapters folded in, W + Σ weight · scale · B · A, and its
// config.json. Plain tensors keep their type; quantized matrices become fp16. A head that shares
// the embedding becomes a tensor of its own where an adapter parts the two. Memory: one matrix at a
// time. `backend` computes nothing; its threads work. One that has hidden channels in another order
// (Backend::reorders_hidden) is a bug here.
LoraMergeResult merge_lora(Backend& backend, const LoraMergeArgs& args);

}  // namespace bl
