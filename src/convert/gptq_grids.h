#pragma once
#include <vector>

#include "convert/group_grids.h"
#include "ops/fitting.h"

namespace bl {

// The scales of GPTQ: for each group and column a binary16 scale and a whole zero point.
class GptqGrids : public GroupGrids {
 public:
  GptqGrids(const GptqGridRules& rules, std::size_t groups, std::int64_t out);

  // Tries scales down from the one that clips nothing, each with the zero points around the one
  // that covers the smallest weight, and keeps the pair with the least weighted error.
  void search(const HostThreads& threads, std::size_t group, const GroupWeights& weights) override;
  ColumnGrids grids(std::size_t group, const ColumnPanel& panel) const override;
  // Solves for the best scale with the same and, if free, the two next zero points.
  bool refit(std::size_t group, const ColumnPanel& panel, const RefitTerms& terms) override;

  // [groups, out], as GptqRounded holds them.
  std::vector<std::uint16_t>& scales() { return scales_; }
  std::vector<std::uint8_t>& zeros() { return zeros_; }

 private:
  ColumnGrids spanning(const GroupPanel& panel) const;
  ColumnGrids best_grids(const GroupPanel& panel) const;
  void store(std::size_t group, const ColumnPanel& panel, const ColumnGrids& grids);

  const GptqGridRules& rules_;
  std::int64_t out_;
  std::vector<std::uint16_t> scales_;
  std::vector<std::uint8_t> zeros_;
};

}  // namespace bl
