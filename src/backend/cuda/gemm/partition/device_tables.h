#pragma once
// The device's copies of PartitionCache's tables: begins of CtaRanges and quads of RegsPlans.

#include <cstdint>
#include <map>

#include "backend/cuda/gemm/partition/cta_ranges.h"
#include "backend/cuda/gemm/partition/regs_plan.h"

namespace bl::cuda {

class DeviceTables {
 public:
  DeviceTables() = default;
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  // Each table is copied on first use, and found again by its host address.
  const std::int32_t* begins(const CtaRanges& ranges);
  const RegsQuad* quads(const RegsPlan& plan);  // null where the plan has none

 private:
  const void* copy(const void* host, std::size_t bytes);
  std::map<const void*, void*> copies_;
};

}  // namespace bl::cuda
