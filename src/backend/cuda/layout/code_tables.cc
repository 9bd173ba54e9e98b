#include "backend/cuda/layout/code_tables.h"

#include "backend/cuda/weights/column_slice.h"

namespace bl::cuda {
namespace {

using TablePlaces = CodePackPlan::TablePlaces;

// f(table, where it is, what views have of it) for all tables of a strip.
template <class F>
void for_each_table(const StripTables& of, const TablePlaces& at, CodeView& views, const F& f) {
  f(of.chunks, at.chunks, views.view.chunks);
  f(of.pieces, at.pieces, views.view.pieces);
  f(of.runs, at.runs, views.view.runs);
  f(of.paired.pairs, at.pairs, views.view.pairs);
  f(of.paired.pieces, at.pair_pieces, views.view.pair_pieces);
  f(of.place_of_channel, at.places, views.place_of_channel);
}

// The tables of `of`, and how long they are, in place of those that `views` has.
void look_at(const StripTables& of, const TablePlaces& at, const std::byte* memory,
             CodeView& views) {
  for_each_table(of, at, views,
                 [&]<class T>(const std::vector<T>& table, std::size_t place, const T*& pointer) {
                   pointer = table.empty() ? nullptr : reinterpret_cast<const T*>(memory + place);
                 });
  views.view.chunk_count = static_cast<std::int32_t>(of.chunks.size());
  views.view.piece_count = static_cast<std::int32_t>(of.pieces.size());
  views.view.run_count = static_cast<std::int32_t>(of.runs.size());
  views.view.pair_count = static_cast<std::int32_t>(of.paired.pairs.size());
}

}  // namespace

std::vector<std::byte> tables_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout) {
  std::vector<std::byte> bytes(layout.total - layout.tables());
  const auto at = [&](std::size_t place) { return bytes.data() + (place - layout.tables()); };
  const auto put_all = [&](const StripTables& of, const TablePlaces& places) {
    CodeView unused;
    for_each_table(of, places, unused, [&](const auto& table, std::size_t place, const auto*&) {
      put(at(place), table);
    });
  };
  put_all(plan, layout);
  put(at(layout.channels), plan.channel_of_slot);
  for (std::size_t i = 0; i < plan.parts.size(); ++i) put_all(plan.parts[i], layout.parts[i]);
  return bytes;
}

CodeViews views_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout,
                   const std::byte* memory) {
  CodeViews views;
  CodeMatrixView& view = views.view;
  view.codes = memory;
  view.scales = memory + layout.scales;
  view.strip_bytes = plan.strip_bytes();
  view.strips = static_cast<std::int32_t>(plan.strips());
  view.groups = plan.groups;
  view.units = static_cast<std::int32_t>(plan.units());
  view.out = static_cast<std::int32_t>(plan.out);
  view.zero = plan.zero;
  view.kind = plan.kind;
  look_at(plan, layout, memory, views);
  if (!plan.channel_of_slot.empty()) {
    views.channel_of_slot = reinterpret_cast<const std::int32_t*>(memory + layout.channels);
  }
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const StripPart& part = plan.parts[i];
    CodeView& made = views.parts.emplace_back(CodeView{view, nullptr});
    made.view.codes = view.codes + part.first_byte;
    made.view.units = part.units;
    look_at(part, layout.parts[i], memory, made);
  }
  return views;
}

}  // namespace bl::cuda
