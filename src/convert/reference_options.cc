#include "convert/reference_options.h"

#include <algorithm>
#include <cmath>

namespace bl {
namespace {

// The share that is left, without the last digits that subtracting adds.
double rest_of(double share, double of = 1.0) { return std::round((of - share) * 100.0) / 100.0; }

Mix one(int bits, std::int32_t size) { return {{bits, 1.0, size}}; }

// `share` of the slots with `high` bits, the rest with `low`, all in groups of one size.
Mix two(double share, int high, int low, std::int32_t size) {
  return {{high, share, size}, {low, rest_of(share), size}};
}

// 5 % of the slots with `high` bits in groups of 32, `share` with `middle` bits and the rest with
// `low`, in groups of `size`.
Mix three(int high, double share, int middle, int low, std::int32_t size) {
  return {{high, 0.05, 32}, {middle, share, size}, {low, rest_of(share, 0.95), size}};
}

// 5 % of the slots with 8 bits in groups of 32.
Mix eight_and(int low, std::int32_t size) { return {{8, 0.05, 32}, {low, 0.95, size}}; }

AttentionOption same_but_values(const Mix& mix, const Mix& values) {
  return {mix, mix, values, mix};
}

}  // namespace

MixGroups groups_of(const Mix& mix, std::int64_t in) {
  MixGroups result;
  std::int64_t rest = in;
  for (const MixPart& part : mix) {
    const double wanted = std::min(static_cast<double>(in) * part.share, static_cast<double>(rest));
    const std::int64_t whole = std::int64_t(std::ceil(wanted / part.group_size)) * part.group_size;
    const GroupList own = uniform_groups(part.bits, part.group_size, std::min(whole, rest));
    result.groups.insert(result.groups.end(), own.begin(), own.end());
    result.sizes.insert(result.sizes.end(), own.size(), part.group_size);
    rest -= std::min(whole, rest);
  }
  return result;
}

std::span<const AttentionOption> attention_options() {
  static const std::vector<AttentionOption> options = [] {
    const Mix least = two(0.05, 3, 2, 64), two_bits = two(0.1, 3, 2, 64);
    const Mix three_bits = two(0.1, 4, 3, 128);
    return std::vector<AttentionOption>{
        {least, least, least, least},
        same_but_values(two_bits, two(0.25, 3, 2, 64)),
        same_but_values(two_bits, three_bits),
        {two_bits, two_bits, three_bits, three_bits},
        same_but_values(three_bits, three_bits),
        same_but_values(three_bits, two(0.1, 4, 3, 64)),
        same_but_values(one(4, 128), one(4, 128)),
        same_but_values(one(4, 128), one(4, 64)),
        same_but_values(one(4, 64), one(4, 32)),
        same_but_values(one(4, 32), one(4, 32)),
        same_but_values(two(0.1, 5, 4, 128), two(0.1, 5, 4, 64)),
        same_but_values(two(0.1, 5, 4, 64), two(0.1, 5, 4, 32)),
        same_but_values(two(0.1, 5, 4, 64), one(5, 64)),
        same_but_values(two(0.1, 5, 4, 32), one(5, 32)),
        same_but_values(two(0.1, 6, 5, 128), one(6, 128)),
        same_but_values(two(0.1, 6, 5, 32), one(6, 32)),
        same_but_values(one(6, 128), one(6, 128)),
        same_but_values(one(6, 32), one(8, 32)),
        same_but_values(one(8, 128), one(8, 128)),
    };
  }();
  return options;
}

std::span<const MlpOption> mlp_options() {
  static const std::vector<MlpOption> options = [] {
    const Mix least = two(0.05, 3, 2, 64), two_bits = two(0.1, 3, 2, 64);
    const Mix six_and_eight = two(0.1, 8, 6, 128);
    return std::vector<MlpOption>{
        {least, least, three(6, 0.2, 3, 2, 64)},
        {two_bits, two(0.25, 3, 2, 64), three(6, 0.2, 3, 2, 64)},
        {two_bits, two(0.3, 3, 2, 64), two(0.05, 5, 3, 32)},
        {two_bits, two(0.3, 3, 2, 64), two(0.05, 5, 4, 32)},
        {two(0.1, 4, 3, 128), two(0.25, 4, 3, 128), three(8, 0.1, 4, 3, 128)},
        {two(0.1, 4, 3, 32), two(0.25, 4, 3, 32), three(8, 0.1, 4, 3, 32)},
        {two(0.1, 4, 3, 32), two(0.25, 4, 3, 32), eight_and(4, 128)},
        {one(4, 128), one(4, 32), eight_and(4, 128)},
        {one(4, 32), one(4, 32), eight_and(4, 32)},
        {two(0.1, 5, 4, 128), two(0.25, 5, 4, 128), three(8, 0.1, 5, 4, 128)},
        {two(0.1, 5, 4, 32), two(0.25, 5, 4, 32), three(8, 0.1, 5, 4, 32)},
        {two(0.1, 6, 5, 128), two(0.25, 6, 5, 128), three(8, 0.1, 6, 5, 128)},
        {two(0.1, 6, 5, 32), two(0.25, 6, 5, 32), three(8, 0.1, 6, 5, 32)},
        {one(6, 128), one(6, 128), eight_and(6, 128)},
        {six_and_eight, six_and_eight, two(0.15, 8, 6, 128)},
        {six_and_eight, six_and_eight, one(8, 128)},
        {one(8, 128), one(8, 128), one(8, 128)},
    };
  }();
  return options;
}

}  // namespace bl
