#pragma once
#include <string>

#include "format/weight_matrix.h"

namespace bl {

// The EXL2 tensor set KEY.q_weight, q_groups, q_scale, q_scale_max, q_invperm (spec §6), with every
// check of §12 but those that need the architecture. No bias. Throws kInvalidFile naming the
// tensor, what was found and what would be right.
Exl2Matrix load_exl2_matrix(const TensorSource& source, const std::string& key);

}  // namespace bl
