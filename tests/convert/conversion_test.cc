// Whole conversions of a tiny model.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "../engine/tiny_model.h"
#include "../model/golden.h"
#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/converter.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "random_rows.h"
#include "stopping_progress.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr int kIds = 256;  // of the tiny model

class Conversion : public testing::Test {
 protected:
  struct Settings {
    double bits = 4.0;
    int threads = 2;
    int stop_after = INT_MAX;  // calls of progress; then the conversion is killed
    double correction = 1.0;
    int head_bits = 6;
    std::int64_t sensitivity_tokens = 0;
    const char* backend = "cpu";
  };

  ConvertReport convert(const char* name, const Settings& settings) {
    return convert_rates(name, settings, {settings.bits}).front();
  }

  // Makes the models NAME, or NAME-3.0bpw and so on, in one run.
  std::vector<ConvertReport> convert_rates(const std::string& name, const Settings& settings,
                                           const std::vector<double>& rates) {
    const auto backend = open_backend(settings.backend, {.threads = settings.threads});
    int calls = 0;
    const ConvertArgs args{.job = {.backend = *backend,
                                   .files = files_,
                                   .calibration = rows_,
                                   .work = root_ / (name + "-job"),
                                   .quantize = {.correction = settings.correction},
                                   .source = "tiny",
                                   .progress = stopping_progress(settings.stop_after, calls)},
                           .head_bits = settings.head_bits,
                           .measure_rows = 2,
                           .sensitivity_tokens = settings.sensitivity_tokens};
    Converter converter(args);
    std::vector<ConvertReport> reports;
    for (const double bits : rates) {
      const fs::path out = root_ / (rates.size() == 1 ? name : name + "-" + rate_name(bits));
      fs::create_directories(out);
      converter.quantize(bits);
      reports.push_back(converter.write(bits, out, std::uint64_t{1} << 30));
    }
    last_calls_ = calls;
    measurement_ = converter.measurement_json();
    return reports;
  }

  std::string bytes_of(const std::string& name) const {
    return read_file(root_ / name / "output.safetensors");
  }

  int last_calls_ = 0;  // of progress
  Json measurement_;    // of the last conversion
  fs::path root_ = scratch_dir("conversion");
  ModelFiles files_ = open_model_folder(make_tiny_model("conversion-model"));
  Calibration rows_ = random_rows(6, 96, kIds);
};

// Every linear is there in EXL2 with the planned rate, everything else in binary16.
TEST_F(Conversion, WritesAModelThatLoads) {
  const ConvertReport report = convert("plain", {});
  EXPECT_LE(report.bits_per_weight, 4.0);
  const ModelFiles converted = open_model_folder(root_ / "plain");
  EXPECT_EQ(converted.config.at("quantization_config").at("quant_method"), "exl2");
  const auto backend = open_backend("cpu", {.threads = 2});
  const ModelLoader loader(*backend, converted, {});
  EXPECT_TRUE(loader.unused_tensors().empty());
  EXPECT_EQ(report.linears.size(), 2u * 7u + 1u);
  for (const LinearReport& linear : report.linears) {
    const WeightMatrix matrix = load_weight_matrix(*converted.source, linear.key, {});
    EXPECT_EQ(format_name(matrix), "exl2") << linear.key;
    EXPECT_LT(linear.relative_error, 0.5) << linear.key;
  }
}

// With 8 bits the model says nearly what the original says; with 3 it says something else.
TEST_F(Conversion, KeepsTheOutputTheBetterTheMoreBits) {
  const auto logits = [](const ModelFiles& files) {
    GoldenRun run("cpu", files, CacheType::kF32);
    return run.logits({random_rows(1, 40, kIds).rows[0]})[0];
  };
  const std::vector<float> base = logits(files_);
  double last = 1e30;
  for (const double bits : {4.5, 6.0, 9.0}) {
    const std::string name = "bits" + std::to_string(static_cast<int>(bits));
    convert(name.c_str(), {.bits = bits});
    const std::vector<float> other = logits(open_model_folder(root_ / name));
    double sum = 0.0, power = 0.0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      sum += (base[i] - other[i]) * (base[i] - other[i]);
      power += base[i] * base[i];
    }
    EXPECT_LT(sum, 0.6 * last) << bits;
    last = sum;
    if (bits > 8.0) {
      EXPECT_LT(sum, 0.003 * power);
    }
  }
}

TEST_F(Conversion, GivesTheSameBytesWithAnyNumberOfThreads) {
  convert("one", {.threads = 1});
  convert("three", {.threads = 3});
  EXPECT_EQ(bytes_of("one"), bytes_of("three"));
}

TEST_F(Conversion, GivesTheSameBytesAfterAKillAtAnyPoint) {
  convert("whole", {});
  for (int stop = 0; stop < 6; ++stop) {
    const std::string name = "killed" + std::to_string(stop);
    EXPECT_THROW(convert(name.c_str(), {.stop_after = stop}), Stopped) << stop;
    EXPECT_FALSE(fs::exists(root_ / name / "output.safetensors"));
    convert(name.c_str(), {});
    EXPECT_EQ(bytes_of("whole"), bytes_of(name.c_str())) << stop;
  }
}

// Three rates in one run, killed anywhere, have the bytes that each has alone; the measurement is
// made once.
TEST_F(Conversion, MakesSeveralRatesOfOneMeasurement) {
  const std::vector<double> rates{3.5, 4.0, 5.25};
  convert_rates("all", {}, rates);
  EXPECT_TRUE(fs::exists(root_ / "all-job" / "4.0bpw" / "part-00002.safetensors"));
  const int calls = last_calls_;
  for (const double bits : rates) {
    const std::string alone = "alone-" + rate_name(bits);
    convert(alone.c_str(), {.bits = bits});
    EXPECT_EQ(bytes_of(alone), bytes_of("all-" + rate_name(bits))) << bits;
  }
  // Measuring reports 3 steps, and each rate 4.
  EXPECT_EQ(calls, 3 + 3 * 4);
  for (int stop = 3; stop < calls; stop += 5) {
    const std::string name = "all-killed" + std::to_string(stop);
    EXPECT_THROW(convert_rates(name, {.stop_after = stop}, rates), Stopped) << stop;
    convert_rates(name, {}, rates);
    for (const double bits : rates) {
      EXPECT_EQ(bytes_of("all-" + rate_name(bits)), bytes_of(name + "-" + rate_name(bits))) << stop;
    }
  }
}

TEST_F(Conversion, AnotherRateUsesTheMeasurementThatIsThere) {
  convert("job", {});
  const std::string measurement = read_file(root_ / "job-job" / "measurement.json");
  convert("job", {.bits = 5.0});
  EXPECT_EQ(last_calls_, 4);  // none of measuring
  EXPECT_EQ(read_file(root_ / "job-job" / "measurement.json"), measurement);
  convert("fresh", {.bits = 5.0});
  EXPECT_EQ(bytes_of("fresh"), bytes_of("job"));
}

// Half of the tokens are compared. Other tokens give other sensitivities, and the same losses.
TEST_F(Conversion, MeasuresSensitivitiesOnTheTokensThatAreAskedFor) {
  convert("default", {});
  const Json usual = measurement_;
  EXPECT_EQ(usual.at("sensitivity_tokens"), 128);
  convert("more", {.sensitivity_tokens = 320});
  EXPECT_EQ(measurement_.at("sensitivity_tokens"), 160);
  const Json& first = usual.at("linears").at(0);
  const Json& second = measurement_.at("linears").at(0);
  EXPECT_NE(first.at("sensitivity"), second.at("sensitivity"));
  EXPECT_EQ(first.at("curves"), second.at("curves"));
  EXPECT_THROW(convert("default", {.sensitivity_tokens = 320}), Error);
}

TEST_F(Conversion, RefusesAnotherJobInItsFolder) {
  const auto refusal = [&](const Settings& settings) -> std::string {
    try {
      convert("job", settings);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  convert("job", {});
  EXPECT_NE(refusal({.head_bits = 8}).find("\"head_bits\""), std::string::npos);
  EXPECT_NE(refusal({.backend = "ref"}).find("\"device\""), std::string::npos);
  rows_.rows[0][0] ^= 1;
  EXPECT_NE(refusal({}).find("\"calibration\""), std::string::npos);
}

// What is said of the whole model: nearly nothing is lost with many bits, more with fewer, and the
// figures stay the same after a kill.
TEST_F(Conversion, ReportsTheQualityOfTheWholeModel) {
  const std::vector<ConvertReport> reports = convert_rates("quality", {.head_bits = 8}, {3.0, 8.0});
  for (const ConvertReport& report : reports) {
    const OutputQuality& quality = report.quality;
    ASSERT_EQ(quality.block_errors.size(), 2u);
    EXPECT_EQ(quality.positions, 2 * 95);  // all but the last of each row held out
    EXPECT_GT(quality.kl_error, 0.0);
    EXPECT_LT(quality.kl_error, quality.kl);
    EXPECT_GT(quality.original_perplexity, 200.0);  // random rows of 256 tokens
    const std::vector<BlockReport> blocks = blocks_of(report);
    ASSERT_EQ(blocks.size(), 3u);
    EXPECT_EQ(blocks[2].name, "head");
    EXPECT_DOUBLE_EQ(blocks[1].relative_error, quality.block_errors[1]);
  }
  EXPECT_LT(reports[1].quality.kl, 0.02 * reports[0].quality.kl);
  EXPECT_LT(reports[1].quality.block_errors[1], 0.02 * reports[0].quality.block_errors[1]);
  EXPECT_NEAR(reports[1].quality.quantized_perplexity / reports[1].quality.original_perplexity, 1.0,
              0.02);
  EXPECT_THROW(convert_rates("again", {.stop_after = 5, .head_bits = 8}, {3.0, 8.0}), Stopped);
  const ConvertReport again = convert_rates("again", {.head_bits = 8}, {3.0, 8.0})[0];
  EXPECT_EQ(to_json(again), to_json(reports[0]));
}

// The mean and the perplexities against what the written model itself says.
TEST_F(Conversion, QualityIsThatOfTheWrittenModel) {
  const ConvertReport report = convert("said", {.bits = 3.0});
  const auto logits = [&](const ModelFiles& files) {
    GoldenRun run("cpu", files, CacheType::kF32);
    return run.logits(rows_.held_out);
  };
  const auto base = logits(files_), other = logits(open_model_folder(root_ / "said"));
  double kl = 0.0, surprise = 0.0;
  std::int64_t n = 0;
  for (std::size_t row = 0; row < rows_.held_out.size(); ++row) {
    const std::size_t vocab = base[row].size() / rows_.held_out[row].size();
    for (std::size_t at = 0; at + 1 < rows_.held_out[row].size(); ++at, ++n) {
      const float* p = base[row].data() + at * vocab;
      const float* q = other[row].data() + at * vocab;
      double p_sum = 0.0, q_sum = 0.0;
      for (std::size_t i = 0; i < vocab; ++i) {
        p_sum += std::exp(static_cast<double>(p[i]));
        q_sum += std::exp(static_cast<double>(q[i]));
      }
      for (std::size_t i = 0; i < vocab; ++i) {
        kl += std::exp(p[i]) / p_sum * (p[i] - std::log(p_sum) - q[i] + std::log(q_sum));
      }
      surprise -= q[static_cast<std::size_t>(rows_.held_out[row][at + 1])] - std::log(q_sum);
    }
  }
  EXPECT_EQ(report.quality.positions, n);
  EXPECT_NEAR(report.quality.kl, kl / static_cast<double>(n), 0.01 * report.quality.kl);
  EXPECT_NEAR(report.quality.quantized_perplexity, std::exp(surprise / static_cast<double>(n)),
              0.01 * report.quality.quantized_perplexity);
}

// Rows that are held out take part in nothing but the figures and the guard of corrections.
TEST_F(Conversion, HeldOutRowsAreNotFitted) {
  const ConvertReport before = convert("before", {.correction = 0.0});
  std::swap(rows_.held_out[0][5], rows_.held_out[0][9]);
  rows_.held_out.push_back(rows_.held_out[1]);
  const ConvertReport after = convert("after", {.correction = 0.0});
  EXPECT_EQ(bytes_of("before"), bytes_of("after"));
  EXPECT_NE(before.quality.kl, after.quality.kl);
  EXPECT_EQ(after.held_out_rows, 3);
  EXPECT_EQ(after.held_out_tokens, 3 * 96);
  EXPECT_EQ(after.fitted_tokens, 6 * 96);
}

// Corrections that are derived from hardly any rows are mostly weakened, which loses less on other
// rows than taking them whole.
TEST_F(Conversion, WeakensCorrectionsThatRowsHeldOutContradict) {
  const Calibration all = random_rows(30, 96, kIds);
  rows_.rows.resize(2);
  const ConvertReport few = convert("few", {.bits = 3.0});
  rows_.rows = all.rows;
  const ConvertReport many = convert("many", {.bits = 3.0});
  EXPECT_GT(weakened_corrections(few), 7);
  EXPECT_LT(weakened_corrections(many), weakened_corrections(few));
  EXPECT_LT(many.quality.kl, few.quality.kl);
}

TEST_F(Conversion, RefusesAModelThatIsQuantized) {
  convert("twice", {});
  files_ = open_model_folder(root_ / "twice");
  try {
    convert("again", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("already quantized"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bl::test
