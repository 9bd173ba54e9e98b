#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace bl::cpu {

// Instruction sets that the kernels are compiled for, slowest first. Files named *_simd.cc are
// compiled once for each; everything else of this folder is compiled for any x86-64 (README.md).
enum class Isa : std::uint8_t {
  kPortable,  // plain C++, any processor
  kAvx2,      // AVX2, FMA, F16C
  kAvxVnni,   // the same with 256-bit VNNI
  kAvx512,    // AVX-512 F, BW, DQ, VL, VNNI
};

std::string_view name_of(Isa isa);

// What this processor and its operating system can run; never empty, best last.
std::vector<Isa> available_isas();

// Whether a line that comes into the L2 cache brings the other one of its 128 bytes, as in Intel's
// processors (Optimization Reference Manual, "spatial prefetcher"). False where it is not known.
bool fetches_line_pairs();

}  // namespace bl::cpu
