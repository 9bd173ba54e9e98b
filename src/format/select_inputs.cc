#include "format/select_inputs.h"

#include <numeric>
#include <vector>

#include "base/error.h"
#include "format/bit_codec.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

using Channels = std::span<const std::int32_t>;

constexpr std::size_t kRun = kCodesPerRun;

WeightMatrix inputs_of(const DenseMatrix& matrix, Channels channels, CodeCopy codes) {
  return DenseMatrix{matrix.name,
                     matrix.transposed ? gather_rows(matrix.weight, channels, codes)
                                       : gather_columns(matrix.weight, channels, codes),
                     matrix.transposed,
                     {}};
}

// Groups that have channels left, numbered anew.
void select_groups(const GptqMatrix& matrix, Channels channels, GptqMatrix& result) {
  std::vector<std::int32_t> number(static_cast<std::size_t>(matrix.groups), -1);
  for (const std::int32_t channel : channels) {
    number[static_cast<std::size_t>(matrix.group_of[static_cast<std::size_t>(channel)])] = 0;
  }
  for (std::size_t g = 0; g < number.size(); ++g) {
    if (number[g] < 0) continue;
    number[g] = static_cast<std::int32_t>(result.groups++);
    const auto first = static_cast<std::int64_t>(g) * matrix.out;
    const auto take = [&](const std::vector<std::uint16_t>& from, std::vector<std::uint16_t>& to) {
      to.insert(to.end(), from.begin() + first, from.begin() + first + matrix.out);
    };
    take(matrix.zeros, result.zeros);
    take(matrix.scales, result.scales);
  }
  for (const std::int32_t channel : channels) {
    const std::int32_t group = matrix.group_of[static_cast<std::size_t>(channel)];
    result.group_of.push_back(number[static_cast<std::size_t>(group)]);
  }
}

WeightMatrix inputs_of(const GptqMatrix& matrix, Channels channels, CodeCopy codes) {
  const auto run = static_cast<std::size_t>(32 / std::gcd(32, matrix.bits));
  const auto words = static_cast<std::int64_t>(run) * matrix.bits / 32;  // of a run
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const auto first = static_cast<std::size_t>(channels[i - i % run]);
    if (channels.size() % run != 0 || first % run != 0 ||
        static_cast<std::size_t>(channels[i]) != first + i % run) {
      fail(ErrorCode::kUnsupported,
           "linear {}: {} input channels of a {}-bit GPTQ matrix cannot be taken apart; whole runs "
           "of {} neighbours, which share words, can",
           quoted_name(matrix.name), channels.size(), matrix.bits, run);
    }
  }
  GptqMatrix result;
  result.name = matrix.name;
  result.bits = matrix.bits;
  result.in = static_cast<std::int64_t>(channels.size());
  result.out = matrix.out;
  select_groups(matrix, channels, result);
  if (codes == CodeCopy::kLeftOut) return result;
  auto owner = std::make_shared<std::vector<std::uint32_t>>();
  owner->reserve(channels.size() / run * static_cast<std::size_t>(words * matrix.out));
  for (std::size_t i = 0; i < channels.size(); i += run) {
    const std::uint32_t* rows =
        matrix.qweight.data() + std::int64_t{channels[i]} * matrix.bits / 32 * matrix.out;
    owner->insert(owner->end(), rows, rows + words * matrix.out);
  }
  result.qweight = *owner;
  result.owner = owner;
  return result;
}

// What the spans of a part point to.
struct Exl2Bytes {
  std::vector<std::uint32_t> weight;
  std::vector<std::uint32_t> scale;
  std::vector<std::uint16_t> scale_max;
};

class Exl2Part {
 public:
  Exl2Part(const Exl2Matrix& matrix, Channels channels, CodeCopy codes)
      : matrix_(matrix), codes_(codes), place_(static_cast<std::size_t>(matrix.in), -1) {
    for (std::size_t j = 0; j < channels.size(); ++j) {
      std::int32_t& place = place_[static_cast<std::size_t>(channels[j])];
      BL_CHECK(place < 0);
      place = static_cast<std::int32_t>(j);
    }
    result_.name = matrix.name;
    result_.out = matrix.out;
  }

  Exl2Matrix take() {
    for (std::size_t g = 0; g < matrix_.groups.size(); ++g) add_group(g);
    result_.q_weight = bytes_->weight;
    result_.q_scale = bytes_->scale;
    result_.q_scale_max = bytes_->scale_max;
    result_.owner = bytes_;
    return std::move(result_);
  }

 private:
  void add_group(std::size_t g) {
    const Exl2Matrix::Group& group = matrix_.groups[g];
    std::vector<std::int32_t> slots;  // of the group, counted from its first
    for (std::int32_t slot = 0; slot < group.slots; ++slot) {
      const std::int32_t channel = matrix_.perm[static_cast<std::size_t>(group.first_slot + slot)];
      const std::int32_t place = place_[static_cast<std::size_t>(channel)];
      if (place < 0) continue;
      slots.push_back(slot);
      result_.perm.push_back(place);
    }
    if (slots.size() % kRun != 0) {
      fail(ErrorCode::kUnsupported,
           "linear {}: the wanted input channels include {} of the {} of EXL2 group {} ({} bits); "
           "each group can give multiples of 32 (input_share() finds such channels)",
           quoted_name(matrix_.name), slots.size(), group.slots, g, group.bits);
    }
    if (slots.empty()) return;
    const auto count = static_cast<std::int32_t>(slots.size());
    result_.groups.push_back(
        {group.bits, word_rows_, static_cast<std::int32_t>(result_.in), count});
    result_.in += count;
    word_rows_ += count / kCodesPerRun * group.bits;
    bytes_->scale_max.push_back(matrix_.q_scale_max[g]);
    if (codes_ == CodeCopy::kLeftOut) return;
    const auto scale = matrix_.q_scale.begin() + static_cast<std::int64_t>(g) * (matrix_.out / 8);
    bytes_->scale.insert(bytes_->scale.end(), scale, scale + matrix_.out / 8);
    for (std::size_t i = 0; i < slots.size(); i += kRun) {
      add_run(group, Channels(slots).subspan(i, kRun));
    }
  }

  // 32 slots of a group. A run of the file moves as it is; others are put together code by code.
  void add_run(const Exl2Matrix::Group& group, Channels slots) {
    const std::uint32_t* words =
        matrix_.q_weight.data() + std::int64_t{group.first_word} * matrix_.out;
    const std::size_t begin = bytes_->weight.size();
    if (slots[0] % kCodesPerRun == 0 && slots[kRun - 1] == slots[0] + kCodesPerRun - 1) {
      words += std::int64_t{slots[0]} / kCodesPerRun * group.bits * matrix_.out;
      bytes_->weight.insert(bytes_->weight.end(), words, words + group.bits * matrix_.out);
      return;
    }
    bytes_->weight.resize(begin + static_cast<std::size_t>(group.bits * matrix_.out));
    std::uint32_t* to = bytes_->weight.data() + begin;
    for (std::size_t i = 0; i < kRun; ++i) {
      for (std::int64_t c = 0; c < matrix_.out; ++c) {
        write_code(to + c, matrix_.out, static_cast<std::int64_t>(i), group.bits,
                   read_code(words + c, matrix_.out, slots[i], group.bits));
      }
    }
  }

  const Exl2Matrix& matrix_;
  CodeCopy codes_;
  std::vector<std::int32_t> place_;  // of each channel in the part, −1 where it is not in it
  std::int32_t word_rows_ = 0;
  std::shared_ptr<Exl2Bytes> bytes_ = std::make_shared<Exl2Bytes>();
  Exl2Matrix result_;
};

WeightMatrix inputs_of(const Exl2Matrix& matrix, Channels channels, CodeCopy codes) {
  return Exl2Part(matrix, channels, codes).take();
}

}  // namespace

WeightMatrix select_inputs(const WeightMatrix& matrix, Channels channels, CodeCopy codes) {
  BL_CHECK(!channels.empty() && !has_seeded_codes(matrix));
  for (const std::int32_t channel : channels) {
    BL_CHECK(channel >= 0 && channel < in_features(matrix));
  }
  WeightMatrix result =
      std::visit([&](const auto& m) { return inputs_of(m, channels, codes); }, matrix);
  std::visit([&](auto& m) { m.bias = bias_of(matrix); }, result);
  return result;
}

}  // namespace bl
