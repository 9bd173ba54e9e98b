#pragma once
#include <cstdint>
#include <span>

#include "format/weight_matrix.h"

namespace bl {

// Outputs `rows` of a plain matrix, in that order, with their biases: for checkpoints that
// interleave what the layers want apart. A copy.
DenseMatrix gather_outputs(const DenseMatrix& matrix, std::span<const std::int64_t> rows);

// Every output row (of a tensor [out, in]) scaled to length 1, as F32.
DenseMatrix normalized_outputs(const DenseMatrix& matrix);

}  // namespace bl
