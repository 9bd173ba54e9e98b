// Whole conversions of a tiny model.

#include <gtest/gtest.h>

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
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr int kIds = 256;  // of the tiny model

struct Stopped {};

class Conversion : public testing::Test {
 protected:
  struct Settings {
    double bits = 4.0;
    int threads = 2;
    int stop_after = INT_MAX;  // calls of progress; then the conversion is killed
    double correction = 1.0;
  };

  ConvertReport convert(const char* name, const Settings& settings) {
    const auto backend = open_backend("cpu", {.threads = settings.threads});
    const fs::path out = root_ / name;
    fs::create_directories(out);
    int calls = 0;
    const ConvertArgs args{.backend = *backend,
                           .files = files_,
                           .calibration = rows_,
                           .work = root_ / (std::string(name) + "-job"),
                           .bits = settings.bits,
                           .head_bits = 6,
                           .measure_rows = 2,
                           .quantize = {.correction = settings.correction},
                           .source = "tiny",
                           .progress = [&](const char*, std::int64_t, std::int64_t) {
                             if (calls++ >= settings.stop_after) throw Stopped();
                           }};
    Converter converter(args);
    converter.quantize();
    return converter.write(out, std::uint64_t{1} << 30);
  }

  std::string bytes_of(const char* name) const {
    return read_file(root_ / name / "output.safetensors");
  }

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

TEST_F(Conversion, RefusesAnotherJobInItsFolder) {
  convert("job", {});
  try {
    convert("job", {.bits = 5.0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"bits\""), std::string::npos) << error.what();
  }
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
