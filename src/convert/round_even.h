#pragma once

namespace bl {

// The nearest integer, ties to even, for |value| < 2^22. Adding and subtracting 1.5 · 2^23 does it
// in code that compilers vectorize for every processor.
inline float round_even(float value) { return (value + 12582912.0f) - 12582912.0f; }

}  // namespace bl
