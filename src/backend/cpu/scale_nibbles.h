#pragma once

namespace bl::cpu {

// Where the scale code of column c of a tile lies in its 8 bytes, as a nibble number: even columns
// in the first four bytes, odd ones in the last four, so that one variable shift separates them.
constexpr int nibble_position(int column) { return column / 2 + (column % 2) * 8; }

}  // namespace bl::cpu
