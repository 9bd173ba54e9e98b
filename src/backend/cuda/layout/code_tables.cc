#include "backend/cuda/layout/code_tables.h"

#include "backend/cuda/layout/k_step_table.h"
#include "backend/cuda/layout/put_table.h"

namespace bl::cuda {
namespace {

using TableOffsets = CodePackPlan::TableOffsets;

// Calls f(table, its offset, its pointer in `views`) for every table.
template <class F>
void for_each_table(const NTileTables& of, const TableOffsets& at, CodeView& views, const F& f) {
  f(of.k_blocks, at.k_blocks, views.view.k_blocks);
  f(of.copy_blocks, at.copy_blocks, views.view.copy_blocks);
  f(of.runs, at.runs, views.view.runs);
  f(of.paired.pairs, at.pairs, views.view.pairs);
  f(of.paired.copy_blocks, at.pair_copy_blocks, views.view.pair_copy_blocks);
  f(of.fragment_offset_of_feature, at.feature_offsets, views.fragment_offset_of_feature);
}

// Points `views` to the tables of `of`, and sets their lengths.
void point_to_tables(const NTileTables& of, const TableOffsets& at, const std::byte* memory,
                     CodeView& views) {
  for_each_table(of, at, views,
                 [&]<class T>(const std::vector<T>& table, std::size_t place, const T*& pointer) {
                   pointer = table.empty() ? nullptr : reinterpret_cast<const T*>(memory + place);
                 });
  views.view.k_block_count = static_cast<std::int32_t>(of.k_blocks.size());
  views.view.copy_block_count = static_cast<std::int32_t>(of.copy_blocks.size());
  views.view.run_count = static_cast<std::int32_t>(of.runs.size());
  views.view.pair_count = static_cast<std::int32_t>(of.paired.pairs.size());
}

}  // namespace

std::vector<std::byte> tables_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout) {
  std::vector<std::byte> bytes(layout.total - layout.tables());
  const auto at = [&](std::size_t place) { return bytes.data() + (place - layout.tables()); };
  const auto put_all = [&](const NTileTables& of, const TableOffsets& feature_offsets) {
    CodeView unused;
    for_each_table(
        of, feature_offsets, unused,
        [&](const auto& table, std::size_t place, const auto*&) { put_table(at(place), table); });
  };
  put_all(plan, layout);
  put_table(at(layout.features), plan.feature_of_k);
  put_table(
      at(layout.k_step_table),
      make_k_step_table(plan.k_blocks, static_cast<int>(plan.k_steps()), plan.n_tile_bytes()));
  for (std::size_t i = 0; i < plan.k_splits.size(); ++i)
    put_all(plan.k_splits[i], layout.k_splits[i]);
  return bytes;
}

CodeViews views_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout,
                   const std::byte* memory) {
  CodeViews views;
  CodeMatrixView& view = views.view;
  view.codes = memory;
  view.scales = memory + layout.scales;
  view.n_tile_bytes = plan.n_tile_bytes();
  view.n_tiles = static_cast<std::int32_t>(plan.n_tiles());
  view.groups = plan.groups;
  view.k_steps = static_cast<std::int32_t>(plan.k_steps());
  view.out = static_cast<std::int32_t>(plan.out);
  view.zero = plan.zero;
  view.kind = plan.kind;
  view.k_step_table = memory + layout.k_step_table;
  point_to_tables(plan, layout, memory, views);
  if (!plan.feature_of_k.empty()) {
    views.feature_of_k = reinterpret_cast<const std::int32_t*>(memory + layout.features);
  }
  for (std::size_t i = 0; i < plan.k_splits.size(); ++i) {
    const NTileKSplit& k_split = plan.k_splits[i];
    CodeView& made = views.k_splits.emplace_back(CodeView{view, nullptr});
    made.view.codes = view.codes + k_split.first_byte;
    made.view.k_steps = k_split.k_steps;
    made.view.k_step_table = nullptr;
    point_to_tables(k_split, layout.k_splits[i], memory, made);
  }
  return views;
}

}  // namespace bl::cuda
