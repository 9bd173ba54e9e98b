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

namespace {

// The values of all codes at all 16 scales of a group: binary16 bits [16, 2^bits].
std::vector<std::uint16_t> group_values(int bits, std::uint16_t scale_max) {
  std::vector<std::uint16_t> values;
  const float group_scale = exl2_group_scale(scale_max);
  for (std::uint32_t scale_code = 0; scale_code < 16; ++scale_code) {
    const float scale = exl2_column_scale(group_scale, scale_code);
    for (int code = 0; code < 1 << bits; ++code) {
      values.push_back(float_to_half(static_cast<float>(code - exl2_center(bits)) * scale));
    }
  }
  return values;
}

}  // namespace

std::vector<std::uint16_t> decoded_rows(const RoundedMatrix& matrix) {
  constexpr std::int64_t kColumns = 32;  // whose rows stay in a cache from slot to slot
  BL_CHECK(matrix.out % kColumns == 0);
  std::vector<std::vector<std::uint16_t>> values;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    values.push_back(group_values(matrix.groups[g].bits, matrix.scale_max[g]));
  }
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(matrix.in * matrix.out));
  for (std::int64_t first = 0; first < matrix.out; first += kColumns) {
    std::uint16_t* const to = rows.data() + first * matrix.in;
    std::int64_t slot = 0;
    for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
      const int bits = matrix.groups[g].bits;
      const std::uint8_t* scale_codes =
          matrix.scale_codes.data() + static_cast<std::int64_t>(g) * matrix.out + first;
      for (const std::int64_t end = slot + matrix.groups[g].slots; slot < end; ++slot) {
        const std::uint8_t* codes = matrix.codes.data() + slot * matrix.out + first;
        const std::int64_t channel = matrix.perm[static_cast<std::size_t>(slot)];
        for (std::int64_t c = 0; c < kColumns; ++c) {
          const int at = (scale_codes[c] << bits) + codes[c];
          to[c * matrix.in + channel] = values[g][static_cast<std::size_t>(at)];
        }
      }
    }
  }
  return rows;
}

}  // namespace bl
