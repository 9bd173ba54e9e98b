#pragma once
#include <cstdlib>

namespace bl::test {

// Whether tests that would take long go through every size and type instead of a sample: where the
// environment has BITLOOM_THOROUGH, as tools/gpu_check and ./run_tests --all set it.
inline bool thorough() { return std::getenv("BITLOOM_THOROUGH") != nullptr; }

}  // namespace bl::test
