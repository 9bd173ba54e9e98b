#include "convert/rounded_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "format/bit_codec.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl {

GroupList uniform_groups(int bits, std::int32_t size, std::int64_t slots) {
  GroupList groups;
  for (std::int64_t at = 0; at < slots; at += size) {
    groups.push_back({bits, static_cast<std::int32_t>(std::min<std::int64_t>(size, slots - at))});
  }
  return groups;
}

std::int64_t stored_bits(const GroupList& groups, std::int64_t in, std::int64_t out) {
  std::int64_t bits = 32 * in;  // q_invperm
  for (const SlotGroup& group : groups) {
    bits += group.bits * group.slots * out + 4 * out + 16 + 32;
  }
  return bits;
}

Exl2Tensors pack_exl2(const RoundedMatrix& matrix) {
  Exl2Tensors tensors;
  const std::int64_t out = matrix.out;
  tensors.q_scale_max = matrix.scale_max;
  tensors.q_scale.assign(matrix.groups.size() * static_cast<std::size_t>(out / 8), 0);
  for (std::size_t i = 0; i < matrix.scale_codes.size(); ++i) {
    write_code(tensors.q_scale.data(), 1, static_cast<std::int64_t>(i), 4, matrix.scale_codes[i]);
  }
  tensors.q_invperm.resize(matrix.perm.size());
  for (std::size_t slot = 0; slot < matrix.perm.size(); ++slot) {
    tensors.q_invperm[static_cast<std::size_t>(matrix.perm[slot])] =
        static_cast<std::int32_t>(slot);
  }
  std::int64_t words = 0;
  for (const SlotGroup& group : matrix.groups) words += group.bits * group.slots / kCodesPerRun;
  tensors.q_weight.assign(static_cast<std::size_t>(words * out), 0);
  std::int64_t word = 0;
  const std::uint8_t* codes = matrix.codes.data();
  for (const SlotGroup& group : matrix.groups) {
    BL_CHECK(word <= UINT16_MAX);
    tensors.q_groups.push_back(static_cast<std::uint16_t>(group.bits));
    tensors.q_groups.push_back(static_cast<std::uint16_t>(word));
    for (std::int64_t r = 0; r < group.slots; ++r) {
      for (std::int64_t c = 0; c < out; ++c) {
        write_code(tensors.q_weight.data() + word * out + c, out, r, group.bits, *codes++);
      }
    }
    word += group.bits * group.slots / kCodesPerRun;
  }
  return tensors;
}

std::vector<std::uint16_t> decoded_rows(const RoundedMatrix& matrix) {
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(matrix.in * matrix.out));
  std::int64_t slot = 0;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const SlotGroup& group = matrix.groups[g];
    const float group_scale = exl2_group_scale(matrix.scale_max[g]);
    for (std::int64_t end = slot + group.slots; slot < end; ++slot) {
      const std::int64_t channel = matrix.perm[static_cast<std::size_t>(slot)];
      for (std::int64_t c = 0; c < matrix.out; ++c) {
        const float scale = exl2_column_scale(
            group_scale, matrix.scale_codes[g * static_cast<std::size_t>(matrix.out) +
                                            static_cast<std::size_t>(c)]);
        const int code = matrix.codes[static_cast<std::size_t>(slot * matrix.out + c)];
        rows[static_cast<std::size_t>(c * matrix.in + channel)] =
            float_to_half(static_cast<float>(code - exl2_center(group.bits)) * scale);
      }
    }
  }
  return rows;
}

}  // namespace bl
