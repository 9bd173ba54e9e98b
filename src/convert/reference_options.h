#pragma once
// What ExLlamaV2's converter chooses from: joint choices of widths and group sizes for the linears
// of an attention or MLP module.

#include <array>
#include <span>
#include <vector>

#include "convert/rounded_matrix.h"

namespace bl {

// A share of the slots of a linear that has one width, in groups of one size.
struct MixPart {
  int bits = 0;
  double share = 0.0;
  std::int32_t group_size = 0;
};
using Mix = std::vector<MixPart>;  // widths fall

// How many of `in` slots the parts of a mix get, and in what groups: each its share rounded up to
// whole groups, while slots last. Where the shares are less than 1, slots remain without a group.
struct MixGroups {
  GroupList groups;
  std::vector<std::int32_t> sizes;  // of each group's part; the last group may be shorter
};
MixGroups groups_of(const Mix& mix, std::int64_t in);

// For q, k, v and o.
using AttentionOption = std::array<Mix, 4>;
std::span<const AttentionOption> attention_options();
// For gate, up and down; without a gate its mix is of no account.
using MlpOption = std::array<Mix, 3>;
std::span<const MlpOption> mlp_options();

}  // namespace bl
