#pragma once
#include <cstdint>
#include <span>

namespace bl {

// Whether all of `ids` are one unit, written at least `repeats` times one after another (the last
// time perhaps in part). Time linear in the number of ids.
bool is_loop(std::span<const std::int32_t> ids, std::int64_t repeats);

}  // namespace bl
