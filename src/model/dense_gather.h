#pragma once
#include <cstdint>
#include <span>

#include "format/weight_matrix.h"

namespace bl {

// The outputs `rows` of a plain matrix, in this order, with their biases, as a matrix that is not
// transposed: for checkpoints that fuse or interleave what layers need apart. A view where they lie
// in memory like that, otherwise a copy.
DenseMatrix gather_outputs(const DenseMatrix& matrix, std::span<const std::int64_t> rows);
// Whether that is a copy.
bool gathers_copy(const DenseMatrix& matrix, std::span<const std::int64_t> rows);

// The biases of these outputs, in this order. The matrix must have biases.
HostArray gather_biases(const DenseMatrix& matrix, std::span<const std::int64_t> rows);

// Copies a matrix [out, in] as F32 with each output row scaled to length 1.
DenseMatrix normalized_outputs(const DenseMatrix& matrix);

}  // namespace bl
