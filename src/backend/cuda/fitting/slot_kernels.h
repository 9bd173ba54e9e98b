#pragma once
// The launches of GPTQ and coordinate descent. A lane goes through the slots of a run for one
// column; what a slot changes in the later ones of its run is added up when they are reached, in
// the order of slots, and everything outside of the run gets it by a product afterwards.

#include "backend/cuda/fitting/fitting_device.h"
#include "backend/cuda/fitting/group_grids.h"
#include "backend/cuda/fitting/slot_runs.h"

namespace bl::cuda {

// A matrix while it is rounded: all [in, out] and contiguous.
struct SlotMatrices {
  float* work = nullptr;    // GPTQ: weights with error feedback; sweeps: H · (values − wanted)
  float* values = nullptr;  // the decoded weights
  std::uint8_t* codes = nullptr;
  std::int64_t in = 0;
  std::int64_t out = 0;  // a multiple of 32
};

// [in, in]: Uᵀ for GPTQ, H for sweeps; rows lie `stride` apart.
struct SlotFactors {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

// What launches of one group work with.
struct GroupWork {
  SlotMatrices matrices;
  SlotFactors factors;
  GroupGrids grids;
};

// Rounds the slots of a run, which have their feedback from all earlier runs. errors [run, out]:
// (wanted − value) / U[k][k].
void round_slots(FittingDevice& device, const GroupWork& work, const SlotRun& run, float* errors);

// steps [group, out] = q − zero.
void read_steps(FittingDevice& device, const GroupWork& work, const GroupRuns& group, float* steps);

// sums [in]: of each row of H over the slots of its group.
void sum_group_rows(FittingDevice& device, const SlotFactors& h, const GroupRuns& group,
                    float* sums);

struct RefitInputs {
  const float* steps = nullptr;     // [group, out]: q − zero
  const float* products = nullptr;  // [group, out]: H of the group times the steps
  const float* row_sums = nullptr;  // [in]
};
// Fits the scales of a group to its codes, and changes its values. changes [group, out]: by how
// much.
void refit_group(FittingDevice& device, const GroupWork& work, const GroupRuns& group,
                 const RefitInputs& inputs, float* changes);

// Changes the codes of a run where that lowers the loss. changes [run, out]: by how much values
// change, which is also added to total [run, out].
void change_codes(FittingDevice& device, const GroupWork& work, const SlotRun& run, float* changes,
                  float* total);

}  // namespace bl::cuda
