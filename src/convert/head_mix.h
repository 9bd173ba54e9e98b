#pragma once
#include "convert/rounded_matrix.h"

namespace bl {

// The widths of the head for a setting of `head_bits` (2, 3, 4, 5, 6, 8), as the reference's
// converter mixes them. Throws kInvalidArgument for other
// settings.
GroupList head_groups(int head_bits, std::int64_t in);

}  // namespace bl
