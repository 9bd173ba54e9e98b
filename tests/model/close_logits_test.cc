// A random model as careless weights make it: its logits lie close together, and which one is the
// largest often hangs on rounding (tools/make_close_golden.py says how it is made).
//
// Tolerances are shares of the length of a row of logits, ‖row − golden‖ ÷ ‖golden‖, of the worst
// row and of the median:
// - kExact is for the reference backend, which computes in F32 and keeps keys and values in F32.
// - kRounded is for other backends, which keep keys and values in binary16 and may multiply in
// lower
//   precision than F32. A third of the rows have their best two tokens closer together than the
//   tolerance of the median, so one backend may well choose another token than the next.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "model/golden.h"

namespace bl::test {
namespace {

struct Tolerance {
  double worst = 0;
  double median = 0;
};

constexpr Tolerance kExact{2e-4, 2e-5};
constexpr Tolerance kRounded{1e-1, 4e-3};

using Row = std::span<const float>;

double length_of(Row row) {
  double squares = 0;
  for (const float value : row) squares += double{value} * double{value};
  return std::sqrt(squares);
}

double apart(Row row, Row golden) {
  std::vector<float> difference(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) difference[i] = row[i] - golden[i];
  return length_of(difference) / length_of(golden);
}

std::vector<Row> rows_of(const std::vector<float>& logits, std::size_t vocab) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < logits.size(); i += vocab) rows.emplace_back(&logits[i], vocab);
  return rows;
}

void expect_within(const std::string& backend, CacheType cache, const Tolerance& tolerance) {
  const Golden golden(golden_folder("close-tiny") / "llama-close");
  GoldenRun run(backend, golden.folder(), cache);
  const auto vocab = static_cast<std::size_t>(run.model().vocab());
  std::vector<double> all;
  for (const GoldenPrompt& prompt : golden.prompts()) {
    const std::vector<Row> expected = rows_of(prompt.logits, vocab);
    for (const std::vector<float>& logits :
         {run.logits({prompt.ids})[0], run.chunked_logits(prompt.ids, 1)}) {
      const std::vector<Row> rows = rows_of(logits, vocab);
      ASSERT_EQ(rows.size(), expected.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        all.push_back(apart(rows[i], expected[i]));
        EXPECT_LE(all.back(), tolerance.worst) << backend << ", position " << i;
      }
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_LE(all[all.size() / 2], tolerance.median) << backend;
}

TEST(CloseLogits, RefIsExact) { expect_within("ref", CacheType::kF32, kExact); }

TEST(CloseLogits, CpuIsWithinTheTolerance) { expect_within("cpu", CacheType::kF16, kRounded); }

TEST(CloseLogits, CudaIsWithinTheTolerance) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  expect_within(cuda_backend(), CacheType::kF16, kRounded);
}

// Without this the case would not be the hard one that it is kept for.
TEST(CloseLogits, MarginsAreBelowTheTolerance) {
  const Golden golden(golden_folder("close-tiny") / "llama-close");
  std::size_t positions = 0;
  std::size_t close = 0;
  for (const GoldenPrompt& prompt : golden.prompts()) {
    for (const Row row : rows_of(prompt.logits, prompt.logits.size() / prompt.ids.size())) {
      std::vector<float> sorted(row.begin(), row.end());
      std::sort(sorted.rbegin(), sorted.rend());
      ++positions;
      close += (sorted[0] - sorted[1]) / length_of(row) < kRounded.median;
    }
  }
  EXPECT_GE(3 * close, positions) << close << " of " << positions;
}

}  // namespace
}  // namespace bl::test
