#pragma once
#include <cstdint>
#include <span>

#include "format/gather_array.h"
#include "format/weight_matrix.h"

namespace bl {

// Parts of a linear whose outputs several linears share (fused q, k and v, gate and up, interleaved
// heads). Codes are moved, never decoded. The parts keep the name of the whole.

// Outputs [begin, begin + count). Dense rows stay where they are; other formats are copied, and
// throw as select_outputs() does.
WeightMatrix slice_outputs(const WeightMatrix& matrix, std::int64_t begin, std::int64_t count);

// Output j of the result is output columns[j] of `matrix`; the bias follows. Throws kUnsupported
// for EXL2 if the number of columns is no multiple of 32. Indices out of range are a bug, and so
// are codes that a seed stands for.
WeightMatrix select_outputs(const WeightMatrix& matrix, std::span<const std::int32_t> columns,
                            CodeCopy codes = CodeCopy::kCopied);

}  // namespace bl
