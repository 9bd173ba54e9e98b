#pragma once

namespace bl::cuda {

// The most parts that `argmax` cuts a row into. The second kernel compares their maxima, one a
// lane.
inline constexpr int kArgmaxParts = 32;

}  // namespace bl::cuda
