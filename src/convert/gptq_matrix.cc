#include "convert/gptq_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "format/bit_codec.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// The number that a group of slots has in the file. Where slots are whole groups of neighbouring
// channels in another order, groups are numbered by their channels, so that g_idx is channel / size
// and readers need no permutation; otherwise by their slots.
std::vector<std::int32_t> file_groups(const GptqRounded& matrix) {
  std::vector<std::int32_t> numbers(matrix.groups.size());
  const std::int64_t size = matrix.groups.front().slots;
  for (std::size_t slot = 0; slot < matrix.perm.size(); ++slot) {
    const std::size_t group = slot / static_cast<std::size_t>(size);
    const auto number = static_cast<std::int32_t>(matrix.perm[slot] / size);
    if (slot % static_cast<std::size_t>(size) == 0) numbers[group] = number;
    if (numbers[group] == number) continue;
    for (std::size_t g = 0; g < numbers.size(); ++g) numbers[g] = static_cast<std::int32_t>(g);
    break;
  }
  return numbers;
}

}  // namespace

GptqTensors pack_gptq(const GptqRounded& matrix) {
  const int bits = matrix.groups.front().bits;
  const auto out = static_cast<std::size_t>(matrix.out);
  BL_CHECK(matrix.in % 32 == 0 && matrix.out % 32 == 0);
  const std::vector<std::int32_t> numbers = file_groups(matrix);
  const std::size_t zero_words = out / 32 * static_cast<std::size_t>(bits);
  GptqTensors tensors;
  tensors.qweight.assign(matrix.codes.size() / 32 * static_cast<std::size_t>(bits), 0);
  tensors.qzeros.assign(numbers.size() * zero_words, 0);
  tensors.scales.resize(matrix.scales.size());
  tensors.g_idx.resize(matrix.perm.size());
  const auto group_slots = static_cast<std::size_t>(matrix.groups.front().slots);
  for (std::size_t slot = 0; slot < matrix.perm.size(); ++slot) {
    const std::int32_t channel = matrix.perm[slot];
    tensors.g_idx[static_cast<std::size_t>(channel)] = numbers[slot / group_slots];
    for (std::size_t c = 0; c < out; ++c) {
      write_code(tensors.qweight.data() + c, matrix.out, channel, bits,
                 matrix.codes[slot * out + c]);
    }
  }
  for (std::size_t g = 0; g < numbers.size(); ++g) {
    const auto number = static_cast<std::size_t>(numbers[g]);
    std::copy_n(matrix.scales.data() + g * out, out, tensors.scales.data() + number * out);
    for (std::size_t c = 0; c < out; ++c) {
      const std::uint32_t zero = matrix.zeros[g * out + c];
      write_code(tensors.qzeros.data() + number * zero_words, 1, static_cast<std::int64_t>(c), bits,
                 matrix.v2 ? zero : zero - 1);
    }
  }
  return tensors;
}

std::vector<std::uint16_t> decoded_rows(const GptqRounded& matrix) {
  std::vector<std::uint16_t> rows(matrix.codes.size());
  const auto in = static_cast<std::size_t>(matrix.in), out = static_cast<std::size_t>(matrix.out);
  const auto group_slots = static_cast<std::size_t>(matrix.groups.front().slots);
  for (std::size_t slot = 0; slot < in; ++slot) {
    const auto channel = static_cast<std::size_t>(matrix.perm[slot]);
    const std::size_t first = slot / group_slots * out;
    for (std::size_t c = 0; c < out; ++c) {
      const int steps = static_cast<int>(matrix.codes[slot * out + c]) - matrix.zeros[first + c];
      rows[c * in + channel] =
          float_to_half(static_cast<float>(steps) * half_to_float(matrix.scales[first + c]));
    }
  }
  return rows;
}

std::int64_t stored_bits(const GptqRounded& matrix) {
  const int bits = matrix.groups.front().bits;
  return bits * matrix.in * matrix.out + std::ssize(matrix.groups) * matrix.out * (16 + bits) +
         32 * matrix.in;
}

}  // namespace bl
