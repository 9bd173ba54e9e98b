#pragma once
// Partitions and register plans, each made once for the shapes of its matrices: pure host code.
// DeviceTables holds the device's copies of their tables.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/cuda/gemm/partition/cta_ranges.h"
#include "backend/cuda/gemm/partition/regs_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {

struct PartitionRequest {
  int ctas = 0;
  // Gated: n_tile i of the first matrix is multiplied together with n_tile i of the second.
  bool pairs = false;
  // For the int8 GEMV: no more ranges than needed, so that the first CTAs of the next launch find
  // free multiprocessors.
  bool spare = false;
  int late = 0;         // LateCtas::count; they are late by one n_tile
  bool inputs = false;  // the matrices read different input layouts
};

class PartitionCache {
 public:
  PartitionCache() = default;
  PartitionCache(const PartitionCache&) = delete;
  PartitionCache& operator=(const PartitionCache&) = delete;

  CtaRanges find(std::span<const CodeWeights* const> matrices, const PartitionRequest& request);
  // For the two k_splits of one matrix (CodeViews::k_splits).
  CtaRanges find_k_splits(const CodeWeights& matrix, int ctas);
  // See plan_regs(). With max_k_splits = 1, matrices with equal k_tiling share a plan.
  const RegsPlan& find_regs_plan(const CodeWeights& matrix, int ctas, int max_k_splits);

  // Whether any GEMV of this card has deferred its gate multiplication to its reader. From then on
  // all GEMVs use the code that supports it: two variants of the kernel in a step cost more than
  // the more general one does (docs/adr/0012).
  bool has_deferred_gate_mul() const { return deferred_gate_mul_; }
  void set_deferred_gate_mul() { deferred_gate_mul_ = true; }

 private:
  using Key = std::vector<std::uint64_t>;
  std::map<Key, std::vector<std::int32_t>> begins_;
  std::map<Key, RegsPlan> regs_plans_;
  bool deferred_gate_mul_ = false;
};

}  // namespace bl::cuda
