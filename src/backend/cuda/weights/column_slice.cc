#include "backend/cuda/weights/column_slice.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/weights/packed_size.h"
#include "base/thread_pool.h"

namespace bl::cuda {
namespace {

// What a thread copies at a time.
constexpr std::size_t kGrainBytes = std::size_t{256} << 10;

// Rows of `stored` elements each, of which some columns are wanted. An element of a row stands for
// `columns` columns of the matrix.
template <class T>
struct Rows {
  std::span<const T> values;
  std::int64_t stored = 0;
  std::int64_t columns = 1;

  std::int64_t count() const { return static_cast<std::int64_t>(values.size()) / stored; }
  std::size_t bytes(std::int64_t wanted) const {
    if (values.empty()) return 0;
    return static_cast<std::size_t>(count() * (wanted / columns)) * sizeof(T);
  }
  void copy(const ColumnRange& range, std::byte* to, ThreadPool& threads) const {
    if (values.empty()) return;
    const auto* from = reinterpret_cast<const std::byte*>(values.data() + range.first / columns);
    const std::size_t row = static_cast<std::size_t>(range.count / columns) * sizeof(T);
    const std::size_t pitch = static_cast<std::size_t>(stored) * sizeof(T);
    if (row == pitch) {
      copy_bytes(to, from, values.size_bytes(), threads);
      return;
    }
    const auto grain = static_cast<long>(std::max<std::size_t>(1, kGrainBytes / row));
    threads.parallel_for(count(), grain, [&](long begin, long end) {
      for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
        std::memcpy(to + r * row, from + r * pitch, row);
      }
    });
  }
};

Rows<std::uint32_t> words_of(const FileCodes& file) { return {file.words, file.stored_out, 1}; }
Rows<std::uint32_t> scale_codes_of(const FileCodes& file) {
  return {file.scale_codes, file.stored_out / 8, 8};
}
Rows<std::uint16_t> scales_of(const FileCodes& file) { return {file.scales, file.stored_out, 1}; }
Rows<std::uint16_t> zeros_of(const FileCodes& file) { return {file.zeros, file.stored_out, 1}; }

}  // namespace

SliceLayout slice_layout(const FileCodes& file, const CodePackPlan& plan, std::int64_t columns) {
  SliceLayout layout;
  std::size_t at = piece_bytes(words_of(file).bytes(columns));
  const auto add = [&](std::size_t bytes) {
    const std::size_t begin = at;
    at += piece_bytes(bytes);
    return begin;
  };
  layout.scale_codes = add(scale_codes_of(file).bytes(columns));
  layout.scales = add(scales_of(file).bytes(columns));
  layout.zeros = add(zeros_of(file).bytes(columns));
  const auto units = static_cast<std::size_t>(plan.units());
  layout.bits_of_unit = add(units * sizeof(std::int32_t));
  layout.offset_of_unit = add(units * sizeof(std::int64_t));
  layout.word_of_unit = add(plan.word_of_unit.size() * sizeof(std::int32_t));
  layout.total = at;
  return layout;
}

std::int64_t columns_that_fit(const FileCodes& file, const CodePackPlan& plan, std::size_t bytes) {
  const std::int64_t strips = plan.strips();
  const auto fits = [&](std::int64_t count) {
    return slice_layout(file, plan, std::min(count * kStripColumns, file.stored_out)).total <=
           bytes;
  };
  std::int64_t low = 1;
  std::int64_t high = strips;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kStripColumns;
}

void copy_slice(const FileCodes& file, const CodePackPlan& plan, const ColumnRange& columns,
                std::byte* to, ThreadPool& threads) {
  const SliceLayout layout = slice_layout(file, plan, columns.count);
  words_of(file).copy(columns, to + layout.words, threads);
  scale_codes_of(file).copy(columns, to + layout.scale_codes, threads);
  scales_of(file).copy(columns, to + layout.scales, threads);
  zeros_of(file).copy(columns, to + layout.zeros, threads);
  put(to + layout.bits_of_unit, plan.bits_of_unit);
  put(to + layout.offset_of_unit, plan.unit_offsets());
  put(to + layout.word_of_unit, plan.word_of_unit);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, ThreadPool& threads) {
  const auto grains = static_cast<long>((bytes + kGrainBytes - 1) / kGrainBytes);
  threads.parallel_for(grains, 1, [&](long first, long last) {
    const std::size_t begin = static_cast<std::size_t>(first) * kGrainBytes;
    const std::size_t end = std::min(bytes, static_cast<std::size_t>(last) * kGrainBytes);
    std::memcpy(to + begin, from + begin, end - begin);
  });
}

}  // namespace bl::cuda
