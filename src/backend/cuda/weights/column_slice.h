#pragma once
// Columns of a quantized matrix as the file holds them, copied into staging memory: a matrix goes
// to the card in slices, while the slice before is being packed there.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"
#include "backend/cuda/layout/put_table.h"

namespace bl {
class ThreadPool;
}

namespace bl::cuda {

// What a file holds of a quantized matrix; a member that the format lacks is empty.
struct FileCodes {
  std::span<const std::uint32_t> words;        // [word rows, stored_out]
  std::span<const std::uint32_t> scale_codes;  // [groups, stored_out / 8]
  std::span<const std::uint16_t> scales;       // [groups, stored_out]
  std::span<const std::uint16_t> zeros;        // [groups, stored_out]
  std::int64_t stored_out = 0;
  // The wanted columns in their order (PackOptions::columns); empty: all.
  std::span<const std::int32_t> columns = {};
  // Set: `words` are generated from this seed and have no data.
  const SeededValues* seeded = nullptr;
};

// Offsets in bytes of a slice's parts: the input of the packing kernels, with the plan's tables.
struct SliceLayout {
  std::size_t words = 0;
  std::size_t scale_codes = 0;
  std::size_t scales = 0;
  std::size_t zeros = 0;
  std::size_t bits_of_k_step = 0;
  std::size_t offset_of_k_step = 0;
  std::size_t word_of_k_step = 0;
  // For seeded words with FileCodes::columns: the file's columns [columns].
  std::size_t sources = 0;
  std::size_t total = 0;
};
SliceLayout slice_layout(const FileCodes& file, const CodePackPlan& plan, std::int64_t columns);

// Returns the most columns whose slice takes no more than `bytes`: a multiple of an n_tile's
// columns, and at least one n_tile.
std::int64_t columns_that_fit(const FileCodes& file, const CodePackPlan& plan, std::size_t bytes);

// Both are multiples of an n_tile's columns, except the count of the last slice.
struct ColumnRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// Copies a range of the wanted columns and the tables to `to`; seeded words are left out.
void copy_slice(const FileCodes& file, const CodePackPlan& plan, const ColumnRange& columns,
                std::byte* to, ThreadPool& threads);

// Copies bytes with all threads.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, ThreadPool& threads);

}  // namespace bl::cuda
