#pragma once
#include "ops/backend.h"

namespace bl {

// How much of a card's memory a model takes. The backend and the planner share this arithmetic, so
// that the plan equals what is taken. It needs no card and is part of every build.
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
  FittingBytes fitting_bytes(const FittingShape& shape) const final;
  CacheType default_cache_type() const final { return CacheType::kF16; }

 private:
  virtual int multiprocessors() const = 0;
};

}  // namespace bl
