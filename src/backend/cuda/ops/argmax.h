#pragma once

namespace bl::cuda {

// Parts of a row whose largest values `argmax` compares: a lane each at the end.
inline constexpr int kArgmaxParts = 32;

}  // namespace bl::cuda
