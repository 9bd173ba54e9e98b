#pragma once
#include <cstdint>
#include <vector>

#include "convert/host_threads.h"
#include "format/weight_matrix.h"
#include "ops/fitting.h"

namespace bl {

// `slots` slots of one width in groups of `size`; the last group may be shorter.
GroupList uniform_groups(int bits, std::int32_t size, std::int64_t slots);
// Bits that a matrix with these groups takes in a file: codes, scales, group table and
// permutation.
std::int64_t stored_bits(const GroupList& groups, std::int64_t in, std::int64_t out);

// The codes of a linear after rounding, in slot order. `out` is padded to a multiple of 32.
struct SlotCodes {
  std::int64_t in = 0;
  std::int64_t out = 0;
  GroupList groups = {};
  std::vector<std::int32_t> perm = {};   // slot → channel
  std::vector<std::uint8_t> codes = {};  // [in, out]
};

// A linear after rounding for EXL2.
struct RoundedMatrix : SlotCodes {
  std::vector<std::uint8_t> scale_codes = {};  // [groups, out], 0 … 15
  std::vector<std::uint16_t> scale_max = {};   // [groups] of binary16 bits
};

// The tensors of a rounded matrix as EXL2 stores them.
struct Exl2Tensors {
  std::vector<std::uint32_t> q_weight;     // [word rows, out]
  std::vector<std::uint16_t> q_groups;     // [2 · groups]
  std::vector<std::uint32_t> q_scale;      // [groups, out / 8]
  std::vector<std::uint16_t> q_scale_max;  // [groups]
  std::vector<std::int32_t> q_invperm;     // [in]
};
Exl2Tensors pack_exl2(const RoundedMatrix& matrix,
                      const HostThreads& threads = HostThreads(nullptr));

// The weights as every reader of EXL2 decodes them: binary16 bits [out, in] in channel order, the
// layout of a plain linear.
std::vector<std::uint16_t> decoded_rows(const RoundedMatrix& matrix,
                                        const HostThreads& threads = HostThreads(nullptr));

}  // namespace bl
