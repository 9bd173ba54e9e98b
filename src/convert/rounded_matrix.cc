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

namespace {

// 32 slots of a group: their codes and the words that these become, each [rows, out].
struct PackedRun {
  const std::uint8_t* codes;
  std::uint32_t* words;
  int bits;
};

// Packs some columns, for which a compiler vectorizes the loops over 32 of them. The words are
// still zero.
void pack_columns(const PackedRun& run, std::int64_t out, std::int64_t first, std::int64_t end) {
  for (int slot = 0; slot < kCodesPerRun; ++slot) {
    const int shift = slot * run.bits % 32;
    const std::uint8_t* codes = run.codes + slot * out;
    std::uint32_t* words = run.words + slot * run.bits / 32 * out;
    for (std::int64_t at = first; at < end; at += 32) {
      for (std::int64_t c = at; c < at + 32; ++c) words[c] |= std::uint32_t{codes[c]} << shift;
    }
    if (shift + run.bits <= 32) continue;
    words += out;  // the codes straddle two words
    for (std::int64_t at = first; at < end; at += 32) {
      for (std::int64_t c = at; c < at + 32; ++c) {
        words[c] |= std::uint32_t{codes[c]} >> (32 - shift);
      }
    }
  }
}

void pack_runs(const std::vector<PackedRun>& runs, std::int64_t out, const HostThreads& threads) {
  constexpr std::int64_t kColumns = 512;  // whose codes and words stay in a cache
  BL_CHECK(out % 32 == 0);
  threads.parallel(std::ssize(runs), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t first = 0; first < out; first += kColumns) {
        pack_columns(runs[static_cast<std::size_t>(r)], out, first,
                     std::min(out, first + kColumns));
      }
    }
  });
}

}  // namespace

Exl2Tensors pack_exl2(const RoundedMatrix& matrix, const HostThreads& threads) {
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
  std::vector<PackedRun> runs;
  const std::uint8_t* codes = matrix.codes.data();
  for (const SlotGroup& group : matrix.groups) {
    BL_CHECK(word <= UINT16_MAX);
    tensors.q_groups.push_back(static_cast<std::uint16_t>(group.bits));
    tensors.q_groups.push_back(static_cast<std::uint16_t>(word));
    BL_CHECK(group.slots % kCodesPerRun == 0);
    for (std::int64_t r = 0; r < group.slots; r += kCodesPerRun) {
      const std::int64_t row = word + r / kCodesPerRun * group.bits;
      runs.push_back({codes, tensors.q_weight.data() + row * out, group.bits});
      codes += kCodesPerRun * out;
    }
    word += group.bits * group.slots / kCodesPerRun;
  }
  pack_runs(runs, out, threads);
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

std::vector<std::uint16_t> decoded_rows(const RoundedMatrix& matrix, const HostThreads& threads) {
  constexpr std::int64_t kColumns = 32;  // whose rows stay in a cache from slot to slot
  BL_CHECK(matrix.out % kColumns == 0);
  std::vector<std::vector<std::uint16_t>> values;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    values.push_back(group_values(matrix.groups[g].bits, matrix.scale_max[g]));
  }
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(matrix.in * matrix.out));
  const auto decode = [&](std::int64_t first) {
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
  };
  threads.parallel(matrix.out, kColumns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kColumns) decode(first);
  });
  return rows;
}

}  // namespace bl
