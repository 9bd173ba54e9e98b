#include "backend/cuda/layout/code_pack_plan.h"

#include <algorithm>
#include <numeric>

#include "backend/cuda/layout/allocation.h"
#include "backend/cuda/layout/k_step_table.h"
#include "base/check.h"
#include "base/error.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl::cuda {
namespace {

// Copies of scales are rounded outwards to 16 bytes.
constexpr std::size_t kScaleSlack = 16;

// Divides the k_steps into k_blocks of one group each. `group_scales`: s(g) of EXL2, or empty.
void add_k_blocks(CodePackPlan& plan, const std::vector<float>& group_scales) {
  std::uint32_t offset = 0;
  const auto k_steps = static_cast<std::size_t>(plan.k_steps());
  for (std::size_t u = 0; u < k_steps;) {
    KBlock k_block;
    k_block.offset = offset;
    k_block.first_k_step = static_cast<std::uint16_t>(u);
    k_block.group = static_cast<std::uint16_t>(plan.group_of_k_step[u]);
    if (!group_scales.empty()) k_block.group_scale = group_scales[k_block.group];
    k_block.bits = static_cast<std::uint8_t>(plan.bits_of_k_step[u]);
    std::size_t end = u;
    while (end < k_steps && end - u < kMaxKBlockSteps && plan.group_of_k_step[end] == k_block.group)
      ++end;
    k_block.k_steps = static_cast<std::uint8_t>(end - u);
    offset += static_cast<std::uint32_t>(k_block.k_steps) * k_block.bits;
    plan.k_blocks.push_back(k_block);
    u = end;
  }
}

// Collects k_blocks into copy_blocks. A copy_block has no more groups than k_steps, even where the
// file has groups without features, so that the room for scales is bounded.
std::vector<CopyBlock> copy_blocks_of(const std::vector<KBlock>& k_blocks) {
  static_assert(kMaxCopyBlockSteps >= kMaxKBlockSteps && kMaxCopyBlockSteps <= 255);
  std::vector<CopyBlock> copy_blocks;
  for (std::size_t c = 0; c < k_blocks.size();) {
    const KBlock& first = k_blocks[c];
    CopyBlock copy_block;
    copy_block.offset = first.offset;
    copy_block.first_k_step = first.first_k_step;
    copy_block.first_k_block = static_cast<std::uint16_t>(c);
    copy_block.first_group = first.group;
    for (; c < k_blocks.size(); ++c) {
      const KBlock& k_block = k_blocks[c];
      const int groups = k_block.group - first.group + 1;
      if (copy_block.k_steps + k_block.k_steps > kMaxCopyBlockSteps || groups > kMaxCopyBlockSteps)
        break;
      copy_block.size =
          static_cast<std::uint16_t>(copy_block.size + k_block.k_steps * k_block.bits);
      copy_block.k_steps = static_cast<std::uint8_t>(copy_block.k_steps + k_block.k_steps);
      copy_block.groups = static_cast<std::uint8_t>(groups);
      ++copy_block.k_blocks;
    }
    copy_blocks.push_back(copy_block);
  }
  return copy_blocks;
}

// Whether two k_blocks can be in one limb run: adjacent, short, of consecutive groups, and of equal
// width and length.
bool are_alike(const KBlock& earlier, const KBlock& k_block) {
  return (k_block.k_steps == 1 || k_block.k_steps == 2) && k_block.k_steps == earlier.k_steps &&
         k_block.bits == earlier.bits && k_block.group == earlier.group + 1;
}

// A warp that makes limbs of one short group leaves most of its lanes idle, so several are joined.
// Runs end with their copy_block.
std::vector<LimbRun> runs_of(const std::vector<KBlock>& k_blocks,
                             const std::vector<CopyBlock>& copy_blocks) {
  std::vector<LimbRun> runs;
  for (const CopyBlock& copy_block : copy_blocks) {
    for (std::size_t i = 0; i < copy_block.k_blocks; ++i) {
      const std::size_t c = copy_block.first_k_block + i;
      const KBlock& k_block = k_blocks[c];
      if (i > 0 && are_alike(k_blocks[c - 1], k_block) &&
          runs.back().k_steps + k_block.k_steps <= kMaxKBlockSteps) {
        runs.back().k_steps = static_cast<std::uint8_t>(runs.back().k_steps + k_block.k_steps);
      } else {
        runs.push_back({k_block.k_steps, k_block.k_steps, k_block.first_k_step});
      }
    }
  }
  return runs;
}

KBlockPair pair_of(const KBlock& first, const KBlock* second) {
  KBlockPair pair;
  pair.codes = first.offset * static_cast<std::uint32_t>(k_step_bytes(1));
  pair.bits = first.bits;
  pair.k_steps = first.k_steps;
  const KBlock* const k_blocks[2] = {&first, second};
  for (std::size_t i = 0; i < 2; ++i) {
    const KBlock* k_block = k_blocks[i];
    // A missing second k_block has scales of 0.
    pair.columns[i].group_scale = k_block == nullptr ? 0 : k_block->group_scale;
    if (i == 1 && k_block != nullptr) pair.k_steps += k_block->k_steps;
    KBlockPair::Sums& sums = pair.sums[i];
    const KBlock& of = k_block == nullptr ? first : *k_block;
    sums.limb_scale = std::uint32_t{of.first_k_step} * kLimbScaleBytes;
    sums.scales = std::uint32_t{of.group} * scale_bytes(ScaleKind::kExl2);
    sums.centre = static_cast<float>(exl2_center(of.bits));
    for (int u = 0; u < 3; ++u) {
      const int k_step = first.first_k_step + u;
      const bool own = k_block != nullptr && k_step >= k_block->first_k_step &&
                       k_step < k_block->first_k_step + k_block->k_steps;
      pair.columns[i].k_steps[u] = own ? k_step * kInputKStepBytes : -kInputZeroBytes;
    }
  }
  return pair;
}

// Pairs the k_blocks of EXL2 within limb runs. A pair needs as many multiplications by scales as
// two k_blocks (there a lane has the sums of every other n_tile, here of all), so pairs only pay
// where most k_blocks find a partner.
PairTables pairs_of(const std::vector<KBlock>& k_blocks, const std::vector<CopyBlock>& copy_blocks,
                    const std::vector<LimbRun>& runs) {
  PairTables tables;
  std::vector<std::size_t> pair_of_k_block;
  std::size_t c = 0;
  for (const LimbRun& run : runs) {
    const std::size_t end = c + run.k_steps / run.k_block_steps;
    while (c < end) {
      const std::size_t count = c + 1 < end ? 2 : 1;
      pair_of_k_block.insert(pair_of_k_block.end(), count, tables.pairs.size());
      tables.pairs.push_back(pair_of(k_blocks[c], count == 2 ? &k_blocks[c + 1] : nullptr));
      c += count;
    }
  }
  constexpr std::size_t kMaxPairPercent = 60;
  if (tables.pairs.size() * 100 > k_blocks.size() * kMaxPairPercent) return {};
  for (CopyBlock copy_block : copy_blocks) {
    const std::size_t first = pair_of_k_block[copy_block.first_k_block];
    const std::size_t last =
        pair_of_k_block[copy_block.first_k_block + std::size_t{copy_block.k_blocks} - 1];
    copy_block.first_k_block = static_cast<std::uint16_t>(first);
    copy_block.k_blocks = static_cast<std::uint8_t>(last - first + 1);
    tables.copy_blocks.push_back(copy_block);
  }
  return tables;
}

// Adds the tables that follow from the k_blocks.
void add_copy_blocks(ScaleKind kind, NTileTables& tables) {
  tables.copy_blocks = copy_blocks_of(tables.k_blocks);
  tables.runs = runs_of(tables.k_blocks, tables.copy_blocks);
  if (kind == ScaleKind::kExl2) {
    tables.paired = pairs_of(tables.k_blocks, tables.copy_blocks, tables.runs);
  }
}

// The cost of a k_block in the GEMV, roughly in instructions.
std::int64_t cost_of(const KBlock& k_block) { return k_block.k_steps * (k_block.bits + 4) + 8; }

// Returns the first k_block of the second of two halves of about equal cost; neither is empty.
std::size_t middle_of(const std::vector<KBlock>& k_blocks) {
  std::int64_t all = 0;
  for (const KBlock& k_block : k_blocks) all += cost_of(k_block);
  std::int64_t cost = 0;
  std::size_t c = 0;
  while (c + 1 < k_blocks.size() && 2 * cost < all) cost += cost_of(k_blocks[c++]);
  return c;
}

NTileKSplit k_split_of(const CodePackPlan& plan, std::size_t begin, std::size_t end) {
  const std::vector<KBlock>& k_blocks = plan.k_blocks;
  NTileKSplit k_split;
  const KBlock first = k_blocks[begin];
  k_split.first_byte = std::int64_t{first.offset} * k_step_bytes(1);
  for (std::size_t c = begin; c < end; ++c) {
    KBlock k_block = k_blocks[c];
    k_block.offset -= first.offset;
    k_block.first_k_step = static_cast<std::uint16_t>(k_block.first_k_step - first.first_k_step);
    k_split.k_steps += k_block.k_steps;
    k_split.k_blocks.push_back(k_block);
  }
  add_copy_blocks(plan.kind, k_split);
  return k_split;
}

bool split_k_pays(const CodePackPlan& plan) { return plan.in >= kLongRow && plan.in > plan.out; }

// Only for matrices whose k all have a feature, and whose features all have an offset.
void add_k_splits(CodePackPlan& plan) {
  const auto elements = static_cast<std::int64_t>(plan.feature_of_k.size());
  if (elements != plan.in || plan.fragment_offset_of_feature.empty() || plan.k_blocks.size() < 2)
    return;
  if (!split_k_pays(plan)) return;
  const std::size_t middle = middle_of(plan.k_blocks);
  plan.k_splits.push_back(k_split_of(plan, 0, middle));
  plan.k_splits.push_back(k_split_of(plan, middle, plan.k_blocks.size()));
  const std::int32_t longest = std::max(plan.k_splits[0].k_steps, plan.k_splits[1].k_steps);
  std::int32_t first_k_step = 0;
  for (NTileKSplit& k_split : plan.k_splits) {
    for (const std::uint16_t place : plan.fragment_offset_of_feature) {
      const std::int32_t in_k_split = place - first_k_step * kKStepSize;
      const bool is_there = in_k_split >= 0 && in_k_split < k_split.k_steps * kKStepSize;
      k_split.fragment_offset_of_feature.push_back(
          static_cast<std::uint16_t>(is_there ? in_k_split : longest * kKStepSize));
    }
    first_k_step += k_split.k_steps;
  }
}

void add_offsets(CodePackPlan& plan) {
  if (plan.feature_of_k.size() > std::size_t{1} << 16) return;
  const auto in = static_cast<std::size_t>(plan.in);
  std::vector<bool> placed(in);
  std::vector<std::uint16_t> feature_offsets((in + 3) / 4 * 4);
  for (std::size_t k = 0; k < plan.feature_of_k.size(); ++k) {
    const std::int32_t feature = plan.feature_of_k[k];
    if (feature < 0) continue;
    const auto at = static_cast<std::size_t>(feature);
    feature_offsets[at] = static_cast<std::uint16_t>(fragment_offset(static_cast<int>(k)));
    placed[at] = true;
  }
  if (std::find(placed.begin(), placed.end(), false) != placed.end()) return;
  plan.fragment_offset_of_feature = std::move(feature_offsets);
}

// Adds everything that follows from the k_steps, their groups and widths. `group_scales`: see
// add_k_blocks().
void add_tables(CodePackPlan& plan, const std::vector<float>& group_scales) {
  add_k_blocks(plan, group_scales);
  add_copy_blocks(plan.kind, plan);
  add_offsets(plan);
  add_k_splits(plan);
}

void check_k_steps(const CodePackPlan& plan, const std::string& name) {
  if (plan.k_steps() > 65535) {
    fail(ErrorCode::kUnsupported, "{}: {} input channels; the CUDA backend takes up to 2097120",
         name, plan.in);
  }
}

void check_groups(std::int64_t groups, const std::string& name) {
  if (groups > 65535) {
    fail(ErrorCode::kUnsupported, "{}: {} groups of rows; the CUDA backend takes up to 65535", name,
         groups);
  }
}

void choose_zeros(const GptqMatrix& matrix, CodePackPlan& plan) {
  const auto [low, high] = std::minmax_element(matrix.zeros.begin(), matrix.zeros.end());
  BL_CHECK(low != matrix.zeros.end());
  plan.zero = *low;
  if (*low == *high) {
    plan.kind = ScaleKind::kGptq;
  } else if (*high - *low <= 15) {
    plan.kind = ScaleKind::kGptqZeros4;
  } else {
    plan.kind = ScaleKind::kGptqZeros16;
    plan.zero = 0;
  }
}

// Returns the largest f(copy_block), over whole n_tiles and k_splits, whose copy_blocks differ.
template <class F>
std::uint32_t max_over_copy_blocks(const CodePackPlan& plan, const F& f) {
  int most = 0;
  for (const CopyBlock& copy_block : plan.copy_blocks) most = std::max(most, f(copy_block));
  for (const NTileKSplit& k_split : plan.k_splits) {
    for (const CopyBlock& copy_block : k_split.copy_blocks) most = std::max(most, f(copy_block));
  }
  return static_cast<std::uint32_t>(most);
}

}  // namespace

WidthSet CodePackPlan::widths() const {
  WidthSet set = 0;
  for (const std::int32_t bits : bits_of_k_step) set |= width_set({bits});
  return set;
}

std::int64_t CodePackPlan::n_tile_bytes() const {
  return std::int64_t{k_step_bytes(1)} *
         std::accumulate(bits_of_k_step.begin(), bits_of_k_step.end(), 0);
}

std::uint32_t CodePackPlan::max_copy_block_bytes() const {
  return max_over_copy_blocks(
      *this, [](const CopyBlock& copy_block) { return copy_block.size * k_step_bytes(1); });
}

std::uint32_t CodePackPlan::max_copy_block_scale_bytes() const {
  return max_over_copy_blocks(*this, [bytes = scale_bytes(kind)](const CopyBlock& copy_block) {
    const int begin = copy_block.first_group * bytes / 16 * 16;
    const int end = ((copy_block.first_group + copy_block.groups) * bytes + 15) / 16 * 16;
    return end - begin;
  });
}

std::vector<std::int64_t> CodePackPlan::k_step_offsets() const {
  std::vector<std::int64_t> offsets;
  std::int64_t words = 0;
  for (const std::int32_t bits : bits_of_k_step) {
    offsets.push_back(words);
    words += k_step_bytes(bits) / 4;
  }
  return offsets;
}

CodePackPlan::Layout CodePackPlan::layout() const {
  Layout layout;
  layout.scales = allocation_bytes(code_bytes());
  std::size_t end = layout.scales + allocation_bytes(scale_bytes_total() + kScaleSlack);
  const auto take = [&end]<class T>(const std::vector<T>& table) {
    const std::size_t at = end;
    end += allocation_bytes(table.size() * sizeof(T));
    return at;
  };
  const auto take_tables = [&](const NTileTables& of) {
    TableOffsets at;
    at.k_blocks = take(of.k_blocks);
    at.copy_blocks = take(of.copy_blocks);
    at.runs = take(of.runs);
    at.pairs = take(of.paired.pairs);
    at.pair_copy_blocks = take(of.paired.copy_blocks);
    at.feature_offsets = take(of.fragment_offset_of_feature);
    return at;
  };
  static_cast<TableOffsets&>(layout) = take_tables(*this);
  layout.features = take(feature_of_k);
  layout.k_step_table = end;
  end +=
      allocation_bytes(static_cast<std::size_t>(k_step_table_bytes(static_cast<int>(k_steps()))));
  for (const NTileKSplit& k_split : k_splits) layout.k_splits.push_back(take_tables(k_split));
  layout.total = end;
  return layout;
}

CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out) {
  CodePackPlan plan;
  plan.in = matrix.in;
  plan.out = out;
  plan.stored_out = matrix.out;
  plan.kind = ScaleKind::kExl2;
  plan.groups = static_cast<std::int32_t>(matrix.groups.size());
  check_groups(plan.groups, matrix.name);
  plan.feature_of_k = matrix.perm;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const Exl2Matrix::Group& group = matrix.groups[g];
    for (std::int32_t u = 0; u < group.slots / kKStepSize; ++u) {
      plan.group_of_k_step.push_back(static_cast<std::int32_t>(g));
      plan.bits_of_k_step.push_back(group.bits);
      plan.word_of_k_step.push_back(group.first_word + u * group.bits);
    }
  }
  check_k_steps(plan, matrix.name);
  std::vector<float> group_scales;
  for (const std::uint16_t bits : matrix.q_scale_max) {
    group_scales.push_back(exl2_group_scale(bits));
  }
  add_tables(plan, group_scales);
  return plan;
}

CodePackPlan plan_codes(const GptqMatrix& matrix, std::int64_t out) {
  CodePackPlan plan;
  plan.in = matrix.in;
  plan.out = out;
  plan.stored_out = matrix.out;
  plan.groups = static_cast<std::int32_t>(matrix.groups);
  check_groups(plan.groups, matrix.name);
  choose_zeros(matrix, plan);
  std::vector<std::vector<std::int32_t>> members(static_cast<std::size_t>(matrix.groups));
  for (std::int64_t i = 0; i < matrix.in; ++i) {
    const auto group = static_cast<std::size_t>(matrix.group_of[static_cast<std::size_t>(i)]);
    members[group].push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t g = 0; g < members.size(); ++g) {
    const std::vector<std::int32_t>& features = members[g];
    const std::size_t k_steps = (features.size() + kKStepSize - 1) / kKStepSize;
    plan.feature_of_k.insert(plan.feature_of_k.end(), features.begin(), features.end());
    plan.group_of_k_step.insert(plan.group_of_k_step.end(), k_steps, static_cast<std::int32_t>(g));
    plan.bits_of_k_step.insert(plan.bits_of_k_step.end(), k_steps, matrix.bits);
    plan.feature_of_k.resize(plan.group_of_k_step.size() * kKStepSize, -1);
  }
  check_k_steps(plan, matrix.name);
  add_tables(plan, {});
  return plan;
}

}  // namespace bl::cuda
