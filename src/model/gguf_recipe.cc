#include "model/gguf_recipe.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "format/gguf_dequantize.h"

namespace bl {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 23;     // 16 MB of binary16
constexpr std::int64_t kParallelElements = std::int64_t{1} << 16;  // below this, threads do not pay
constexpr std::int64_t kScratchElements = 4096;

// Converts `count` consecutive rows of one source to binary16; false if a value is too large.
bool convert_rows(const GgufRecipe& recipe, GgufRecipe::Row first, std::int64_t count, Half* out) {
  const GgufTensor& source = *recipe.sources[first.source];
  const GgufTypeInfo& type = info_of(source.type);
  const std::int64_t group = type.group_elements;
  float values[kScratchElements];
  std::int64_t at = first.row * recipe.columns;
  const std::int64_t end = at + count * recipe.columns;
  bool fits = true;
  while (at < end) {
    const std::int64_t n = std::min(end - at, kScratchElements);
    const auto bytes = source.bytes.subspan(static_cast<std::size_t>(at / group * type.group_bytes),
                                            static_cast<std::size_t>(n / group * type.group_bytes));
    const std::span<float> run(values, static_cast<std::size_t>(n));
    dequantize_gguf(source.type, bytes, run);
    if (recipe.add != 0) {
      for (float& value : run) value += recipe.add;
    }
    fits = round_to_half(run, {out, static_cast<std::size_t>(n)}) && fits;
    out += n;
    at += n;
  }
  return fits;
}

// Converts rows [begin, end), counted over all matrices, in runs that are consecutive in a source.
bool convert_range(const GgufRecipe& recipe, std::int64_t begin, std::int64_t end, Half* out) {
  bool fits = true;
  std::int64_t row = begin;
  while (row < end) {
    const GgufRecipe::Row first = recipe.row_at(row / recipe.rows, row % recipe.rows);
    std::int64_t count = 1;
    while (row + count < end) {
      const auto next = recipe.row_at((row + count) / recipe.rows, (row + count) % recipe.rows);
      if (next.source != first.source || next.row != first.row + count) break;
      ++count;
    }
    fits = convert_rows(recipe, first, count, out) && fits;
    out += count * recipe.columns;
    row += count;
  }
  return fits;
}

void transpose_into(const Half* in, std::int64_t rows, std::int64_t columns, Half* out) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          out[c * rows + r] = in[r * columns + c];
        }
      }
    }
  }
}

}  // namespace

GgufRecipe::Row GgufRecipe::row_at(std::int64_t matrix, std::int64_t row) const {
  Row result;
  const auto parts = static_cast<std::int64_t>(sources.size());
  if (parts > 1) {
    const std::int64_t each = rows / parts;
    result.source = static_cast<std::size_t>(interleave ? row % parts : row / each);
    row = interleave ? row / parts : row % each;
  }
  if (rotary_heads > 0) {
    const std::int64_t dim = rows / rotary_heads;
    const std::int64_t in_head = row % dim;
    const std::int64_t pair = in_head % (dim / 2);
    row = row - in_head + 2 * pair + in_head / (dim / 2);
  }
  result.row = (first_outer + matrix) * source_rows + first_row + row;
  return result;
}

void GgufExpander::make_rows(const GgufRecipe& recipe, const std::string& name, std::int64_t begin,
                             std::span<Half> out) const {
  const std::int64_t count = static_cast<std::int64_t>(out.size()) / recipe.columns;
  std::atomic<bool> fits{true};
  const auto body = [&](long from, long to) {
    if (!convert_range(recipe, begin + from, begin + to, out.data() + from * recipe.columns)) {
      fits.store(false, std::memory_order_relaxed);
    }
  };
  if (static_cast<std::int64_t>(out.size()) < kParallelElements) {
    body(0, static_cast<long>(count));
  } else {
    const std::lock_guard lock(mutex_);
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>();
    const std::int64_t grain = std::max<std::int64_t>(1, kParallelElements / recipe.columns);
    pool_->parallel_for(static_cast<long>(count), static_cast<long>(grain), body);
  }
  if (!fits) {
    fail(ErrorCode::kInvalidFile,
         "{} holds a value beyond 65504, the largest of the fp16 it is expanded to", name);
  }
}

void GgufExpander::make_matrix(const GgufRecipe& recipe, const std::string& name,
                               std::int64_t matrix, std::span<Half> out) const {
  if (!recipe.transpose) return make_rows(recipe, name, matrix * recipe.rows, out);
  std::vector<Half> upright(out.size());
  make_rows(recipe, name, matrix * recipe.rows, upright);
  transpose_into(upright.data(), recipe.rows, recipe.columns, out.data());
}

void GgufExpander::stream(const GgufRecipe& recipe, const std::string& name,
                          const Sink& sink) const {
  std::vector<Half> piece;
  if (recipe.transpose) {
    piece.resize(static_cast<std::size_t>(recipe.rows * recipe.columns));
    for (std::int64_t matrix = 0; matrix < recipe.outer; ++matrix) {
      make_matrix(recipe, name, matrix, piece);
      sink(piece);
    }
    return;
  }
  const std::int64_t total = recipe.outer * recipe.rows;
  const std::int64_t rows_each = std::max<std::int64_t>(1, kPieceElements / recipe.columns);
  for (std::int64_t row = 0; row < total; row += rows_each) {
    const std::int64_t count = std::min(rows_each, total - row);
    piece.resize(static_cast<std::size_t>(count * recipe.columns));
    make_rows(recipe, name, row, piece);
    sink(piece);
  }
}

void GgufExpander::expand(const GgufRecipe& recipe, const std::string& name,
                          std::span<Half> out) const {
  if (!recipe.transpose) return make_rows(recipe, name, 0, out);
  const auto elements = static_cast<std::size_t>(recipe.rows * recipe.columns);
  for (std::int64_t matrix = 0; matrix < recipe.outer; ++matrix) {
    make_matrix(recipe, name, matrix,
                out.subspan(static_cast<std::size_t>(matrix) * elements, elements));
  }
}

}  // namespace bl
