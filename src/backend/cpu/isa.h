#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace bl::cpu {

// The instruction sets that kernels are compiled for, slowest first. Files named *_simd.cc are
// compiled once for each; all other files here run on any x86-64 (README.md).
enum class Isa : std::uint8_t {
  kPortable,  // plain C++, any processor
  kAvx2,      // AVX2, FMA, F16C
  kAvxVnni,   // the same, and 256-bit VNNI
  kAvx512,    // AVX-512 F, BW, DQ, VL, VNNI
};

std::string_view name_of(Isa isa);

// The sets that this processor and its operating system can run; never empty, best last.
std::vector<Isa> available_isas();

// Whether fetching a line into the L2 cache also fetches the other line of its 128 bytes, as
// Intel's processors do (Optimization Reference Manual, "spatial prefetcher"). False if unknown.
bool fetches_line_pairs();

}  // namespace bl::cpu
