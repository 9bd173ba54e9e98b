#include "backend/cuda/code_pack_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "format/exl2_scale.h"

namespace bl::cuda {
namespace {

// What a warp pays for a chunk besides its bytes, in units of 256 bytes.
constexpr std::uint32_t kChunkCost = 2;

// Cuts the units into chunks of one group and at most kMaxChunkBytes.
// `group_scales`: s(g) of EXL2, or empty.
void add_chunks(CodePackPlan& plan, const std::vector<float>& group_scales) {
  std::uint32_t offset = 0;
  const std::int64_t units = plan.units();
  for (std::int64_t u = 0; u < units;) {
    const auto at = static_cast<std::size_t>(u);
    Chunk chunk;
    chunk.offset = offset;
    chunk.first_unit = static_cast<std::uint16_t>(u);
    chunk.group = static_cast<std::uint16_t>(plan.group_of_unit[at]);
    if (!group_scales.empty()) chunk.group_scale = group_scales[chunk.group];
    chunk.bits = static_cast<std::uint8_t>(plan.bits_of_unit[at]);
    const int most = full_chunk_units(plan.bits_of_unit[at]);
    std::int64_t end = u;
    while (end < units && end - u < most &&
           plan.group_of_unit[static_cast<std::size_t>(end)] == plan.group_of_unit[at]) {
      ++end;
    }
    chunk.units = static_cast<std::uint8_t>(end - u);
    offset += static_cast<std::uint32_t>(chunk.units) * chunk.bits;
    chunk.ends_strip = end == units ? 1 : 0;
    chunk.ends_group =
        end == units || plan.group_of_unit[static_cast<std::size_t>(end)] != chunk.group ? 1 : 0;
    plan.chunks.push_back(chunk);
    u = end;
  }
}

void check_units(const CodePackPlan& plan, const std::string& name) {
  if (plan.units() > 65535) {
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

}  // namespace

std::int64_t CodePackPlan::strip_bytes() const {
  return std::int64_t{256} * std::accumulate(bits_of_unit.begin(), bits_of_unit.end(), 0);
}

std::uint32_t CodePackPlan::cost_of(const Chunk& chunk) {
  return static_cast<std::uint32_t>(chunk.units) * chunk.bits + kChunkCost;
}

std::uint32_t CodePackPlan::strip_cost() const {
  std::uint32_t cost = 0;
  for (const Chunk& chunk : chunks) cost += cost_of(chunk);
  return cost;
}

std::size_t CodePackPlan::device_bytes() const {
  return code_bytes() + scale_bytes_total() + chunks.size() * sizeof(Chunk) +
         channel_of_slot.size() * sizeof(std::int32_t);
}

CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out) {
  CodePackPlan plan;
  plan.in = matrix.in;
  plan.out = out;
  plan.stored_out = matrix.out;
  plan.kind = ScaleKind::kExl2;
  plan.groups = static_cast<std::int32_t>(matrix.groups.size());
  check_groups(plan.groups, matrix.name);
  plan.channel_of_slot = matrix.perm;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const Exl2Matrix::Group& group = matrix.groups[g];
    for (std::int32_t u = 0; u < group.slots / kUnitSlots; ++u) {
      plan.group_of_unit.push_back(static_cast<std::int32_t>(g));
      plan.bits_of_unit.push_back(group.bits);
      plan.word_of_unit.push_back(group.first_word + u * group.bits);
    }
  }
  check_units(plan, matrix.name);
  std::vector<float> group_scales;
  for (const std::uint16_t bits : matrix.q_scale_max) {
    group_scales.push_back(exl2_group_scale(bits));
  }
  add_chunks(plan, group_scales);
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
    const std::vector<std::int32_t>& channels = members[g];
    const std::size_t units = (channels.size() + kUnitSlots - 1) / kUnitSlots;
    plan.channel_of_slot.insert(plan.channel_of_slot.end(), channels.begin(), channels.end());
    plan.group_of_unit.insert(plan.group_of_unit.end(), units, static_cast<std::int32_t>(g));
    plan.bits_of_unit.insert(plan.bits_of_unit.end(), units, matrix.bits);
    plan.channel_of_slot.resize(plan.group_of_unit.size() * kUnitSlots, -1);
  }
  check_units(plan, matrix.name);
  add_chunks(plan, {});
  return plan;
}

}  // namespace bl::cuda
