#include "backend/cuda/weights/column_slice.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "backend/cuda/layout/allocation.h"
#include "base/thread_pool.h"

namespace bl::cuda {
namespace {

// Bytes that a thread copies at a time.
constexpr std::size_t kGrainBytes = std::size_t{256} << 10;

// Returns the file's columns for a range of wanted columns; the last n_tile's padding may have
// none.
std::vector<std::int32_t> sources_of(const FileCodes& file, const ColumnRange& range) {
  std::vector<std::int32_t> sources(static_cast<std::size_t>(range.count));
  std::iota(sources.begin(), sources.end(), static_cast<std::int32_t>(range.first));
  for (std::int32_t& source : sources) {
    const auto at = static_cast<std::size_t>(source);
    if (at < file.columns.size()) source = file.columns[at];
  }
  return sources;
}

// Rows of `stored` elements, of which some columns are wanted. An element stands for `columns`
// columns of the matrix: one, or eight of four bits.
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
  // As copy(), for columns `sources`. A row is first copied as a whole, then looked up: with random
  // reads from the file, loading was half as fast.
  void permute(std::span<const std::int32_t> sources, std::byte* to, ThreadPool& threads) const {
    if (values.empty()) return;
    const std::size_t wanted = sources.size() / static_cast<std::size_t>(columns);
    const auto pitch = static_cast<std::size_t>(stored);
    const auto grain =
        static_cast<long>(std::max<std::size_t>(1, kGrainBytes / (pitch * sizeof(T))));
    threads.parallel_for(count(), grain, [&](long begin, long end) {
      std::vector<T> row(pitch);
      for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
        std::memcpy(row.data(), values.data() + r * pitch, pitch * sizeof(T));
        T* out = reinterpret_cast<T*>(to) + r * wanted;
        if (columns == 1) {
          for (std::size_t i = 0; i < wanted; ++i)
            out[i] = row[static_cast<std::size_t>(sources[i])];
        } else {
          for (std::size_t i = 0; i < wanted; ++i) out[i] = permuted_codes(row, sources, 8 * i);
        }
      }
    });
  }

 private:
  // Returns an element with the codes of columns sources[first], …
  static T permuted_codes(const std::vector<T>& row, std::span<const std::int32_t> sources,
                          std::size_t first) {
    std::uint32_t element = 0;
    for (std::size_t c = 0; c < 8; ++c) {
      const auto source = static_cast<std::uint32_t>(sources[first + c]);
      element |= (row[source / 8] >> 4 * (source % 8) & 15u) << 4 * c;
    }
    return static_cast<T>(element);
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
  std::size_t at = allocation_bytes(words_of(file).bytes(columns));
  const auto add = [&](std::size_t bytes) {
    const std::size_t begin = at;
    at += allocation_bytes(bytes);
    return begin;
  };
  layout.scale_codes = add(scale_codes_of(file).bytes(columns));
  layout.scales = add(scales_of(file).bytes(columns));
  layout.zeros = add(zeros_of(file).bytes(columns));
  const auto k_steps = static_cast<std::size_t>(plan.k_steps());
  layout.bits_of_k_step = add(k_steps * sizeof(std::int32_t));
  layout.offset_of_k_step = add(k_steps * sizeof(std::int64_t));
  layout.word_of_k_step = add(plan.word_of_k_step.size() * sizeof(std::int32_t));
  const bool looked_up = file.seeded != nullptr && !file.columns.empty();
  layout.sources = add(looked_up ? static_cast<std::size_t>(columns) * sizeof(std::int32_t) : 0);
  layout.total = at;
  return layout;
}

std::int64_t columns_that_fit(const FileCodes& file, const CodePackPlan& plan, std::size_t bytes) {
  const std::int64_t n_tiles = plan.n_tiles();
  const auto fits = [&](std::int64_t count) {
    return slice_layout(file, plan, std::min(count * kNTileColumns, file.stored_out)).total <=
           bytes;
  };
  std::int64_t low = 1;
  std::int64_t high = n_tiles;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kNTileColumns;
}

void copy_slice(const FileCodes& file, const CodePackPlan& plan, const ColumnRange& columns,
                std::byte* to, ThreadPool& threads) {
  const SliceLayout layout = slice_layout(file, plan, columns.count);
  const std::vector<std::int32_t> sources =
      file.columns.empty() ? std::vector<std::int32_t>() : sources_of(file, columns);
  const auto copy = [&](const auto& rows, std::size_t at) {
    if (sources.empty()) {
      rows.copy(columns, to + at, threads);
    } else {
      rows.permute(sources, to + at, threads);
    }
  };
  if (file.seeded == nullptr) {
    copy(words_of(file), layout.words);
  } else {
    put_table(to + layout.sources, sources);
  }
  copy(scale_codes_of(file), layout.scale_codes);
  copy(scales_of(file), layout.scales);
  copy(zeros_of(file), layout.zeros);
  put_table(to + layout.bits_of_k_step, plan.bits_of_k_step);
  put_table(to + layout.offset_of_k_step, plan.k_step_offsets());
  put_table(to + layout.word_of_k_step, plan.word_of_k_step);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, ThreadPool& threads) {
  threads.parallel_for(static_cast<long>(bytes), long{kGrainBytes}, [&](long begin, long end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace bl::cuda
