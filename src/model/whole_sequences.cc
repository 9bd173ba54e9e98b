#include "model/whole_sequences.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace bl {
namespace {

std::size_t page_bytes(const KvLayout& layout) {
  return layout.k_page_bytes() + layout.v_page_bytes();
}

std::int64_t elements(std::span<const KvLayout> layers, std::int64_t pages) {
  std::size_t largest = 0;
  for (const KvLayout& layout : layers) largest = std::max(largest, page_bytes(layout));
  return static_cast<std::int64_t>(largest) * pages;
}

}  // namespace

WholeSequences pack_whole(std::span<const std::vector<std::int32_t>> ids) {
  WholeSequences whole;
  StepBatch& batch = whole.batch;
  for (const std::vector<std::int32_t>& text : ids) {
    BL_CHECK(!text.empty());
    const auto tokens = static_cast<std::int32_t>(text.size());
    BatchSequence sequence;
    sequence.first_token = static_cast<std::int32_t>(batch.ids.size());
    sequence.tokens = tokens;
    sequence.reach = tokens;
    sequence.pages.resize(static_cast<std::size_t>(pages_for(tokens)));
    std::iota(sequence.pages.begin(), sequence.pages.end(), static_cast<std::int32_t>(whole.pages));
    // The pages of a sequence are consecutive, and so are its slots.
    const std::int64_t first_slot = whole.pages * kPageSlots;
    for (std::int32_t position = 0; position < tokens; ++position) {
      batch.positions.push_back(position);
      batch.slots.push_back(first_slot + position);
    }
    batch.ids.insert(batch.ids.end(), text.begin(), text.end());
    whole.pages += std::ssize(sequence.pages);
    batch.sequences.push_back(std::move(sequence));
  }
  return whole;
}

std::size_t block_kv_bytes(std::span<const KvLayout> layers, std::int64_t pages) {
  return arena_bytes(DType::kU8, elements(layers, pages));
}

std::vector<PagedKvView> take_block_kv(Arena& scratch, std::span<const KvLayout> layers,
                                       std::int64_t pages) {
  auto* memory = scratch.take(DType::kU8, {elements(layers, pages)}).as<std::byte>();
  std::vector<PagedKvView> views;
  for (const KvLayout& layout : layers) {
    std::byte* values = memory + layout.k_page_bytes() * static_cast<std::size_t>(pages);
    views.push_back({.layout = layout, .k = memory, .v = values, .pages = pages});
  }
  return views;
}

}  // namespace bl
