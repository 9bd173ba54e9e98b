#include "nn/rope.h"

#include <algorithm>

#include "base/check.h"
#include "nn/device_copy.h"

namespace bl {
namespace {

void append_row(const RopeRow& row, std::vector<float>& inv_freq, std::vector<float>& scale) {
  inv_freq.insert(inv_freq.end(), row.inv_freq.begin(), row.inv_freq.end());
  scale.push_back(row.scale);
}

std::int32_t row_of(const RopeSpec& spec, const RopeBank::Sequence& sequence, std::int32_t index,
                    std::int64_t position) {
  switch (choice_of(spec)) {
    case RopeChoice::kFixed:
      return 0;
    case RopeChoice::kByReach:
      return reach_row(spec, sequence.reach);
    case RopeChoice::kDynamic:
      return index;
    case RopeChoice::kByPosition:
      return static_cast<std::int32_t>(
          std::min(position / spec.original_positions, spec.query_steps - 1));
  }
  return 0;
}

}  // namespace

RopeBank::RopeBank(Backend& backend, std::vector<RopeSpec> specs) : backend_(&backend) {
  for (RopeSpec& spec : specs) {
    Table table;
    const std::vector<RopeRow> rows = fixed_rows(spec);
    if (!rows.empty()) {
      std::vector<float> inv_freq;
      std::vector<float> scale;
      for (const RopeRow& row : rows) append_row(row, inv_freq, scale);
      const auto count = static_cast<std::int64_t>(rows.size());
      table.inv_freq =
          device_tensor(backend, std::span<const float>(inv_freq), Shape{count, spec.rotated / 2});
      table.scale = device_tensor(backend, std::span<const float>(scale), Shape{count});
    }
    table.spec = std::move(spec);
    tables_.push_back(std::move(table));
  }
}

StepInputs::RopeRows RopeBank::prepare_one(ExecContext& ctx, const Table& table,
                                           std::span<const Sequence> sequences) const {
  std::vector<std::int32_t> variant;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int32_t t = 0; t < sequences[s].tokens; ++t) {
      variant.push_back(row_of(table.spec, sequences[s], static_cast<std::int32_t>(s),
                               static_cast<std::int64_t>(sequences[s].past) + t));
    }
  }
  StepInputs::RopeRows rows{table.inv_freq.view(), table.scale.view(), nullptr};
  if (choice_of(table.spec) == RopeChoice::kDynamic) {
    std::vector<float> inv_freq;
    std::vector<float> scale;
    for (const Sequence& sequence : sequences) {
      append_row(dynamic_row(table.spec, sequence.reach), inv_freq, scale);
    }
    const auto count = static_cast<std::int64_t>(sequences.size());
    rows.inv_freq = scratch_copy(ctx, *backend_, std::span<const float>(inv_freq),
                                 Shape{count, table.spec.rotated / 2});
    rows.scale = scratch_copy(ctx, *backend_, std::span<const float>(scale), Shape{count});
  }
  const auto tokens = static_cast<std::int64_t>(variant.size());
  rows.variant = scratch_copy(ctx, *backend_, std::span<const std::int32_t>(variant), Shape{tokens})
                     .as<const std::int32_t>();
  return rows;
}

std::vector<StepInputs::RopeRows> RopeBank::prepare(ExecContext& ctx,
                                                    std::span<const Sequence> sequences) const {
  std::vector<StepInputs::RopeRows> result;
  result.reserve(tables_.size());
  for (const Table& table : tables_) result.push_back(prepare_one(ctx, table, sequences));
  return result;
}

std::size_t RopeBank::work_bytes(const RopeSpec& spec, std::int64_t tokens) {
  std::size_t bytes = arena_bytes(DType::kI32, tokens);
  if (choice_of(spec) == RopeChoice::kDynamic) {
    bytes +=
        arena_bytes(DType::kF32, tokens * (spec.rotated / 2)) + arena_bytes(DType::kF32, tokens);
  }
  return bytes;
}

std::size_t RopeBank::device_bytes(const Backend& backend, std::span<const RopeSpec> specs) {
  std::size_t total = 0;
  for (const RopeSpec& spec : specs) {
    const std::size_t rows = fixed_rows(spec).size();
    const auto frequencies = static_cast<std::size_t>(spec.rotated / 2);
    total += backend.weight_bytes(rows * frequencies * sizeof(float)) +
             backend.weight_bytes(rows * sizeof(float));
  }
  return total;
}

}  // namespace bl
