#pragma once
// The ops of FittingOps that touch each element once, and sums of products of rows. All matrices
// are F32 on the card; `perm` is [rows] there, too.

#include <cstdint>

#include "backend/cuda/fitting/fitting_device.h"
#include "ops/fitting.h"

namespace bl::cuda {

void transpose(FittingDevice& device, const TensorView& to, const TensorView& from);
void add_scaled(FittingDevice& device, const TensorView& to, const TensorView& from, float factor);
// to[r] = rows[r]: places on the card or in page-locked host memory; the list is on the card.
void gather_rows(FittingDevice& device, const TensorView& to, const float* const* rows);
// factors: [rows] on the card.
void scale_rows(FittingDevice& device, const TensorView& x, const float* factors);
void wanted_output(FittingDevice& device, const WantedOutputArgs& args);
// Takes `perm` in place of args.perm.
void correction_target(FittingDevice& device, const CorrectionTargetArgs& args,
                       const std::int32_t* perm);
void gather_symmetric(FittingDevice& device, const TensorView& to, const TensorView& upper,
                      const std::int32_t* perm);
// out[k][c] = from[c][perm[k]] for the rows c of `from`, which may be of any float type, and 0
// beyond them.
void in_slot_order(FittingDevice& device, const TensorView& out, const TensorView& from,
                   const std::int32_t* perm);
// A contiguous matrix of any float type as F32.
void widen(FittingDevice& device, const TensorView& to, const TensorView& from);

// sums[r] = Σ a[r] · b[perm[r]] over the columns of b; perm may be null. `sums`: [rows of a] of
// doubles on the card.
void row_dots(FittingDevice& device, const TensorView& a, const TensorView& b,
              const std::int32_t* perm, double* sums);
// sums[r] = Σ (values[r] − wanted[r]) · residual[r], for matrices of one shape.
void row_losses(FittingDevice& device, const TensorView& values, const TensorView& wanted,
                const TensorView& residual, double* sums);

}  // namespace bl::cuda
