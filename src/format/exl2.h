#pragma once
#include <string>

#include "format/weight_matrix.h"

namespace bl {

// Loads the EXL2 tensors KEY.q_weight, q_groups, q_scale, q_scale_max and q_invperm
// (docs/formats/exl2.md §6), and makes every check of §12 except those that need the architecture.
// Does not load a bias. Throws kNotFound where a tensor is missing, and kInvalidFile naming the
// tensor, what was found and what would be right.
Exl2Matrix load_exl2_matrix(const TensorSource& source, const std::string& key);

}  // namespace bl
