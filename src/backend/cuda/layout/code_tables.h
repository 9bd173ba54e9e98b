#pragma once
// A packed matrix's tables in the order of its memory, and the views that kernels have of them:
// host code, tested without a card.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"

namespace bl::cuda {

// A matrix or a part of its slots, as kernels see it.
struct CodeView {
  CodeMatrixView view;
  // [in] rounded up to 4: fragment_offset of each channel's slot; null where 16 bits do not hold
  // it, or a channel has no slot.
  const std::uint16_t* fragment_offset_of_feature = nullptr;
};

struct CodeViews : CodeView {
  const std::int32_t* feature_of_k = nullptr;  // [units · 32]
  std::vector<CodeView> k_splits;              // of NTileParts: two or none
};

// What is to lie from layout.tables() on, to the end of the matrix's memory.
std::vector<std::byte> tables_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout);

// Views of a matrix whose memory, the card's as a rule, begins at `memory`. Tables that are empty
// are null.
CodeViews views_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout,
                   const std::byte* memory);

}  // namespace bl::cuda
