#pragma once
#include <cstdint>

namespace bl {

// A seed from the system's random numbers, for a request that names none. Any thread.
std::uint64_t random_seed();

}  // namespace bl
