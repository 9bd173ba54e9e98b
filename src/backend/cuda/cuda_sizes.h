#pragma once
#include "ops/backend.h"

namespace bl {

// What a model takes of a card's memory, as the backend and the planner both say it, so that a plan
// is what is taken. Pure arithmetic, in every build.
class CudaSizes : public Backend {
 public:
  bool reads_host_memory() const final { return false; }
  std::size_t own_bytes() const final;
  std::size_t loading_bytes() const final;
  std::size_t weight_bytes(std::size_t bytes) const final;
  std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions& options) final;
  std::int64_t packed_inputs(const WeightMatrix& matrix) const final;
  std::size_t expert_table_bytes(std::int64_t experts) const final;
  std::size_t scratch_bytes(const ScratchShape& shape) const final;
  CacheType default_cache_type() const final { return CacheType::kF16; }

 private:
  virtual int multiprocessors() const = 0;
};

}  // namespace bl
