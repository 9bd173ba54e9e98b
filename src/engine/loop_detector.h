#pragma once
#include <cstdint>
#include <span>

namespace bl {

// Whether `ids` is one unit repeated at least `repeats` times without a gap, after which a part of
// it may follow. Takes time linear in the number of ids.
bool is_loop(std::span<const std::int32_t> ids, std::int64_t repeats);

}  // namespace bl
