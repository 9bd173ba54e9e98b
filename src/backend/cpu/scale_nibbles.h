#pragma once

namespace bl::cpu {

// The position of column c's scale code among the 16 nibbles of a tile's 8 bytes: even columns are
// in the first four bytes, odd ones in the last four, so that one variable shift separates them.
constexpr int nibble_position(int column) { return column / 2 + (column % 2) * 8; }

}  // namespace bl::cpu
