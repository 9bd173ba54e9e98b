#pragma once
// What FittingOps asks of rows of logits, F32 [rows, vocab] on the card. All results are doubles on
// the card, one a row.

#include <cstdint>

#include "backend/cuda/fitting/fitting_device.h"

namespace bl::cuda {

// p = softmax of each row, F32 as the logits; entropies: −Σ p · ln p.
void softmax_rows(FittingDevice& device, const TensorView& p, const TensorView& logits,
                  double* entropies);
// Σ p · (ln p − ln softmax(logits)) of each row, given the entropies of p; at least 0.
void divergence_rows(FittingDevice& device, const TensorView& p, const double* entropies,
                     const TensorView& logits, double* divergences);
// ln softmax(logits)[ids[row]] of each row.
void log_probability_rows(FittingDevice& device, const TensorView& logits, const std::int32_t* ids,
                          double* log_p);

}  // namespace bl::cuda
