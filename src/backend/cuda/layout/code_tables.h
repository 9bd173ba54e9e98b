#pragma once
// A packed matrix's tables in the order of its memory, and the views that kernels have of them:
// host code, tested without a card.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"

namespace bl::cuda {

// A matrix or one of its k_splits, as kernels see it.
struct CodeView {
  CodeMatrixView view;
  // [in] rounded up to 4: fragment_offset() of each feature's k; null if 16 bits do not hold it, or
  // a feature has no k.
  const std::uint16_t* fragment_offset_of_feature = nullptr;
};

struct CodeViews : CodeView {
  const std::int32_t* feature_of_k = nullptr;  // [k_steps · 32]
  std::vector<CodeView> k_splits;              // two or none
};

// Returns the bytes from layout.tables() to the end of the matrix's memory.
std::vector<std::byte> tables_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout);

// Returns the views of a matrix whose memory, usually the card's, begins at `memory`. Empty tables
// have null pointers.
CodeViews views_of(const CodePackPlan& plan, const CodePackPlan::Layout& layout,
                   const std::byte* memory);

}  // namespace bl::cuda
