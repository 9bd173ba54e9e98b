// Sizes before anything is quantized, and rates chosen by them.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "backend/registry.h"
#include "base/error.h"
#include "convert/converter.h"
#include "convert/rate_choice.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

Calibration simple_rows() {
  Calibration result;
  for (std::int32_t r = 0; r < 4; ++r) {
    auto& row = (r < 3 ? result.rows : result.held_out).emplace_back();
    for (std::int32_t i = 0; i < 64; ++i) row.push_back((i * i + 7 * r) % 256);
  }
  return result;
}

class RateChoice : public testing::Test {
 protected:
  std::uint64_t file_bytes(std::span<const PlannedMatrix> matrices, std::uint64_t shard) const {
    const auto tensors = planned_tensors(files_, converter_.loader(), matrices);
    return ShardWriter({}, tensors, exl2_shards(shard)).file_bytes();
  }
  SizeLimit limit_of(std::uint64_t bytes) const {
    return {"--target-size", bytes, [this](std::span<const PlannedMatrix> matrices) {
              return file_bytes(matrices, UINT64_MAX);
            }};
  }
  double rate_within(std::uint64_t bytes) {
    return largest_rate(converter_.rates(), limit_of(bytes),
                        [this](double rate) { return converter_.matrices(rate); });
  }

  fs::path root_ = scratch_dir("rates");
  ModelFiles files_ = open_model_folder(make_tiny_model("rates-model"));
  Calibration rows_ = simple_rows();
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  ConvertArgs args_{.job = {.backend = *backend_,
                            .files = files_,
                            .calibration = rows_,
                            .work = root_ / "job",
                            .source = "tiny"},
                    .measure_rows = 2};
  Converter converter_{args_};
};

// What the files take is known to the byte, whether they are one or several.
TEST_F(RateChoice, PlannedBytesAreThoseOfTheFiles) {
  for (const double bits : {3.1, 4.0, 6.2}) {
    converter_.quantize(bits);
    for (const std::uint64_t shard : {UINT64_MAX, std::uint64_t{20000}}) {
      const fs::path out = root_ / fmt::format("{}-{}", bits, shard);
      fs::create_directories(out);
      const ConvertReport report = converter_.write(bits, out, shard);
      EXPECT_EQ(file_bytes(converter_.matrices(bits), shard), report.bytes) << bits;
    }
  }
}

TEST_F(RateChoice, TakesTheMostBitsThatFit) {
  const RateRange range = reachable_rates(converter_.linears());
  const std::uint64_t least = file_bytes(cheapest_matrices(converter_.linears()), UINT64_MAX);
  const std::uint64_t most = file_bytes(converter_.matrices(range.most), UINT64_MAX);
  double last = 0.0;
  for (const double share : {0.1, 0.4, 0.8}) {
    const auto limit =
        least + static_cast<std::uint64_t>(share * static_cast<double>(most - least));
    const double rate = rate_within(limit);
    EXPECT_GT(rate, last);
    last = rate;
    const fs::path out = root_ / fmt::format("share{}", share);
    fs::create_directories(out);
    converter_.quantize(rate);
    EXPECT_LE(converter_.write(rate, out, UINT64_MAX).bytes, limit);
    EXPECT_GT(file_bytes(converter_.matrices(rate + 0.001), UINT64_MAX), limit);
  }
  EXPECT_EQ(rate_within(most), range.most);
  EXPECT_EQ(rate_within(most + 1000), range.most);
}

TEST_F(RateChoice, SaysWhatCanBeReachedWithoutMeasuring) {
  const std::uint64_t least = file_bytes(cheapest_matrices(converter_.linears()), UINT64_MAX);
  check_limit(converter_.linears(), limit_of(least));
  try {
    check_limit(converter_.linears(), limit_of(least - 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format("from {} bytes", least)),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(converter_.is_measured());
  // The least rate that is named is one that allocation reaches.
  const RateRange range = reachable_rates(converter_.linears());
  EXPECT_NO_THROW(converter_.plan(range.least));
  EXPECT_THROW(converter_.plan(range.least - 0.002), Error);
}

// A model that has only shapes loads as the written one does.
TEST_F(RateChoice, HollowModelTakesTheMemoryOfTheWrittenOne) {
  converter_.quantize(4.0);
  const fs::path out = root_ / "written";
  fs::create_directories(out);
  converter_.write(4.0, out, UINT64_MAX);
  const std::vector<PlannedMatrix> matrices = converter_.matrices(4.0);
  const ModelFiles hollow =
      hollow_model(files_, planned_tensors(files_, converter_.loader(), matrices), matrices);
  for (const char* name : {"cpu", "cuda"}) {
    const Planner planner = open_planner(name, {});
    const auto plan_of = [&](const ModelFiles& files) {
      return ModelLoader(*planner.backend, files, {}).plan({.context = 512}).needed();
    };
    EXPECT_EQ(plan_of(hollow), plan_of(open_model_folder(out))) << name;
  }
}

TEST_F(RateChoice, EstimatesAreOfTheRightOrder) {
  const ConvertEstimate estimate = converter_.estimate();
  EXPECT_GT(estimate.measure_seconds, 0.0);
  EXPECT_LT(estimate.measure_seconds, 60.0);
  EXPECT_GT(estimate.rate_seconds, 0.0);
  // The states of the rows alone, and far from what no machine has.
  EXPECT_GT(estimate.memory, 3u * 64u * 32u * 8u);
  EXPECT_LT(estimate.memory, 100u << 20);
  converter_.measure();
  const auto measured = fs::file_size(root_ / "job" / "measurement.json");
  EXPECT_LT(estimate.measurement_bytes, 2 * measured);
}

}  // namespace
}  // namespace bl::test
