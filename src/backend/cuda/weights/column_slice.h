#pragma once
// Columns of a quantized matrix as its file holds them, copied side by side into staging memory: a
// matrix goes to the card in slices, while the one before is being packed there.

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

// What a file holds of a quantized matrix; empty what its format has not.
struct FileCodes {
  std::span<const std::uint32_t> words;        // [word rows, stored_out]
  std::span<const std::uint32_t> scale_codes;  // [groups, stored_out / 8]
  std::span<const std::uint16_t> scales;       // [groups, stored_out]
  std::span<const std::uint16_t> zeros;        // [groups, stored_out]
  std::int64_t stored_out = 0;
  // Which of them are wanted, in their order (PackOptions::columns); empty: all.
  std::span<const std::int32_t> columns = {};
  const SeededValues* seeded = nullptr;  // set: words are these, and not there
};

// Bytes from the beginning of a slice: what the packing kernels read, tables of the plan included.
struct SliceLayout {
  std::size_t words = 0;
  std::size_t scale_codes = 0;
  std::size_t scales = 0;
  std::size_t zeros = 0;
  std::size_t bits_of_k_step = 0;
  std::size_t offset_of_k_step = 0;
  std::size_t word_of_k_step = 0;
  std::size_t sources = 0;  // of seeded words: the file's columns [columns], if FileCodes has some
  std::size_t total = 0;
};
SliceLayout slice_layout(const FileCodes& file, const CodePackPlan& plan, std::int64_t columns);

// The most columns, a multiple of a strip's and at least those, whose slice takes no more than
// `bytes`, if one strip does.
std::int64_t columns_that_fit(const FileCodes& file, const CodePackPlan& plan, std::size_t bytes);

// Both are multiples of a strip's columns, but for the count of the last slice.
struct ColumnRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// Copies those of the wanted columns and the tables to `to`; seeded words are left out.
void copy_slice(const FileCodes& file, const CodePackPlan& plan, const ColumnRange& columns,
                std::byte* to, ThreadPool& threads);

// Plain bytes, by all threads.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, ThreadPool& threads);

}  // namespace bl::cuda
