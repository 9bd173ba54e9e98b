#pragma once
#include "convert/group_grids.h"
#include "ops/fitting.h"

namespace bl {

// The scales of EXL2: one maximum a group, and a 4-bit code for each column.
class Exl2Grids : public GroupGrids {
 public:
  // `groups` must outlive this; `out` is a multiple of 32.
  Exl2Grids(std::span<const SlotGroup> groups, std::int64_t out);

  void search(const HostThreads& threads, std::size_t group, const GroupWeights& weights) override;
  ColumnGrids grids(std::size_t group, const ColumnPanel& panel) const override;
  bool refit(std::size_t group, const ColumnPanel& panel, const RefitTerms& terms) override;

  // [groups, out] and [groups], as RoundedMatrix holds them.
  std::vector<std::uint8_t>& scale_codes() { return scale_codes_; }
  std::vector<std::uint16_t>& scale_max() { return scale_max_; }

 private:
  std::size_t at(std::size_t group, const ColumnPanel& panel) const {
    return group * static_cast<std::size_t>(out_) + static_cast<std::size_t>(panel.first);
  }

  std::span<const SlotGroup> groups_;
  std::int64_t out_;
  std::vector<std::uint8_t> scale_codes_;
  std::vector<std::uint16_t> scale_max_;
};

}  // namespace bl
