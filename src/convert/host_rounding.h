#pragma once
#include "convert/group_grids.h"
#include "convert/host_fitting.h"

namespace bl {

struct RoundingState;
struct SlotBlock;

// FittingOps::round in host memory, for any format whose codes stand for (q − zero) · scale. Every
// column is computed in the same order by whichever thread.
class HostRounding {
 public:
  // Both must outlive this.
  HostRounding(HostFitting& fitting, const RoundArgs& args);

  // Everything but the scales, which `grids` has afterwards.
  RoundResult run(GroupGrids& grids);

 private:
  void round_block(RoundingState& state, const SlotBlock& block);
  // Makes the sweeps and returns the loss.
  double improve(RoundingState& state);
  void sweep_block(RoundingState& state, const SlotBlock& block);

  HostFitting& fitting_;
  HostThreads threads_;
  const RoundArgs& args_;
};

}  // namespace bl
