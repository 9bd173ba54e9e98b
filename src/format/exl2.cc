#include "format/exl2.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "format/quoted_name.h"
#include "format/tensor_check.h"

namespace bl {
namespace {

using Group = Exl2Matrix::Group;

bool is_exl2_width(int bits) { return bits >= 2 && bits <= 8 && bits != 7; }

// Checks q_groups (docs/formats/exl2.md §7): pairs of a bit width and a first word row. Widths and
// starts are checked before anything is derived from them, so that the message names the pair that
// is wrong.
void check_pairs(const NamedArray& array, std::int64_t word_rows) {
  const auto pairs = array.span<std::uint16_t>();
  std::int64_t previous = -1;
  for (std::size_t g = 0; g < pairs.size() / 2; ++g) {
    const int bits = pairs[2 * g];
    const std::int64_t start = pairs[2 * g + 1];
    if (!is_exl2_width(bits)) {
      array.reject("group {} has {} bits; only 2, 3, 4, 5, 6 and 8 exist", g, bits);
    }
    if (g == 0 && start != 0) array.reject("group 0 starts at word row {}; it must be 0", start);
    if (start <= previous || start >= word_rows) {
      array.reject("group {} starts at word row {}; it must be after {} and below {}", g, start,
                   previous, word_rows);
    }
    previous = start;
  }
}

std::vector<Group> read_groups(const NamedArray& array, std::int64_t word_rows) {
  check_pairs(array, word_rows);
  const auto pairs = array.span<std::uint16_t>();
  const std::size_t count = pairs.size() / 2;
  std::vector<Group> groups(count);
  std::int64_t slot = 0;
  for (std::size_t g = 0; g < count; ++g) {
    const int bits = pairs[2 * g];
    const std::int64_t begin = pairs[2 * g + 1];
    const std::int64_t words = (g + 1 < count ? pairs[2 * g + 3] : word_rows) - begin;
    if (words % bits != 0) {
      array.reject("group {}: {} word rows of {}-bit codes are not a multiple of 32 channels", g,
                   words, bits);
    }
    const std::int64_t slots = words / bits * 32;
    if (slots > std::numeric_limits<std::int32_t>::max() - slot) {
      array.reject("its groups have more than 2^31 - 1 input channels");
    }
    groups[g] = {bits, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(slot),
                 static_cast<std::int32_t>(slots)};
    slot += slots;
  }
  return groups;
}

// Warns where widths do not descend: they are decoded here in any order, but ExLlamaV2 walks them
// from wide to narrow. Warns only once, since such files have hundreds of such tensors.
void warn_of_order(const NamedArray& array, const std::vector<Group>& groups) {
  static std::atomic<bool> warned{false};
  const bool descending = std::is_sorted(
      groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.bits > b.bits; });
  if (!descending && !warned.exchange(true)) {
    log_warning("{}: bit widths are not in descending order; ExLlamaV2 cannot read such a file",
                quoted_name(array.name()));
  }
}

// Returns the inverse of q_invperm (docs/formats/exl2.md §10): perm[slot] = channel where
// q_invperm[channel] = slot.
std::vector<std::int32_t> invert(const NamedArray& array) {
  const auto slots = array.span<std::int32_t>();
  std::vector<std::int32_t> perm(slots.size(), -1);
  for (std::size_t channel = 0; channel < slots.size(); ++channel) {
    const auto slot = static_cast<std::size_t>(static_cast<std::uint32_t>(slots[channel]));
    if (slot >= slots.size()) {
      array.reject("entry {} is {}, which is not in the range 0 to {}", channel, slots[channel],
                   slots.size() - 1);
    }
    if (perm[slot] != -1) {
      array.reject("slot {} occurs twice, at {} and {}, so this is not a permutation", slot,
                   perm[slot], channel);
    }
    perm[slot] = static_cast<std::int32_t>(channel);
  }
  return perm;
}

void check_shapes(const NamedArray& weight, const NamedArray& groups, const NamedArray& scale,
                  const NamedArray& scale_max) {
  const std::int64_t out = weight.size(1);
  if (weight.size(0) < 1 || out < 32 || out % 32 != 0) {
    weight.reject(
        "its shape is {}; there must be at least 1 word row and a positive multiple of 32 columns",
        weight.shape());
  }
  if (groups.size(0) < 2 || groups.size(0) % 2 != 0) {
    groups.reject("it holds {} numbers; there must be at least one pair, and only whole pairs",
                  groups.size(0));
  }
  const std::int64_t count = groups.size(0) / 2;
  if (scale.size(0) != count || scale.size(1) != out / 8) {
    scale.reject("its shape is {}; it must be [{}, {}] for {} groups and {} columns", scale.shape(),
                 count, out / 8, count, out);
  }
  if (scale_max.size(0) != count) {
    scale_max.reject("it holds {} values; there must be {}, one for each group", scale_max.size(0),
                     count);
  }
}

void check_scale_max(const NamedArray& array) {
  const auto values = array.span<std::uint16_t>();
  for (std::size_t g = 0; g < values.size(); ++g) {
    if ((values[g] & 0x7c00u) == 0x7c00u) array.reject("the value of group {} is not finite", g);
  }
}

}  // namespace

Exl2Matrix load_exl2_matrix(const TensorSource& source, const std::string& key) {
  const NamedArray weight(source, key + ".q_weight", {DType::kI32}, 2);
  const NamedArray groups(source, key + ".q_groups", {DType::kI16}, 1);
  const NamedArray scale(source, key + ".q_scale", {DType::kI32}, 2);
  const NamedArray scale_max(source, key + ".q_scale_max", {DType::kF16}, 1);
  const NamedArray invperm(source, key + ".q_invperm", {DType::kI32}, 1);
  check_shapes(weight, groups, scale, scale_max);
  check_scale_max(scale_max);

  Exl2Matrix matrix;
  matrix.name = key;
  matrix.out = weight.size(1);
  matrix.groups = read_groups(groups, weight.size(0));
  warn_of_order(groups, matrix.groups);
  const Group& last = matrix.groups.back();
  matrix.in = std::int64_t{last.first_slot} + last.slots;
  if (invperm.size(0) != matrix.in) {
    invperm.reject("it holds {} entries; there must be {}, the number of channels in all groups",
                   invperm.size(0), matrix.in);
  }
  matrix.perm = invert(invperm);
  matrix.q_weight = weight.span<std::uint32_t>();
  matrix.seeded = weight.array().seeded;
  matrix.q_scale = scale.span<std::uint32_t>();
  matrix.q_scale_max = scale_max.span<std::uint16_t>();
  using Owners = std::array<std::shared_ptr<const void>, 3>;
  matrix.owner = std::make_shared<const Owners>(
      Owners{weight.array().owner, scale.array().owner, scale_max.array().owner});
  return matrix;
}

}  // namespace bl
