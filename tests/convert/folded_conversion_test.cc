// Whole conversions of a tiny model with folds.

#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "../engine/tiny_model.h"
#include "../model/golden.h"
#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/converter.h"
#include "format/safetensors_folder.h"
#include "random_rows.h"
#include "stopping_progress.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr int kFoldedIds = 256;  // of the tiny model
const FoldSet kBoth{FoldKind::kResidual, FoldKind::kValues};

// The tiny model with the weights of one channel large in what reads the residual stream, and small
// in the norms before, as training sometimes leaves them. It says what the tiny model says.
class UnevenSource : public TensorSource {
 public:
  explicit UnevenSource(std::shared_ptr<const TensorSource> base) : base_(std::move(base)) {}
  const TensorInfo* find(std::string_view name) const override { return base_->find(name); }
  std::vector<std::string> names() const override { return base_->names(); }
  HostArray read(std::string_view name) const override {
    const HostArray array = base_->read(name);
    const bool norm = name.ends_with("layernorm.weight");
    bool reads = false;
    for (const char* linear : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}) {
      reads = reads || name.ends_with(std::string(linear) + ".weight");
    }
    if (!norm && !reads) return array;
    const auto copy =
        std::make_shared<Tensor>(make_host_tensor(array.view.dtype, array.view.shape));
    const float factor = norm ? 1.0f / kFactor : kFactor;
    visit_float_dtype(array.view.dtype, [&]<class T>(Tag<T>) {
      T* to = copy->view().as<T>();
      const std::int64_t hidden = norm ? array.view.rows() : array.view.columns();
      for (std::int64_t i = 0; i < array.view.shape.elements(); ++i) {
        const auto value = static_cast<float>(array.view.as<const T>()[i]);
        to[i] = T(i % hidden == kChannel ? value * factor : value);
      }
    });
    return {copy->view(), copy};
  }

 private:
  static constexpr std::int64_t kChannel = 3;
  static constexpr float kFactor = 32.0f;
  std::shared_ptr<const TensorSource> base_;
};

class FoldedConversion : public testing::Test {
 protected:
  struct Settings {
    std::optional<FoldSet> folds = kBoth;
    double bits = 4.0;
    int threads = 2;
    int stop_after = INT_MAX;  // calls of progress; then the conversion is killed
    fs::path measurement = {};
  };

  ConvertReport convert(const std::string& name, const Settings& settings) {
    const auto backend = open_backend("cpu", {.threads = settings.threads});
    int calls = 0;
    const ConvertArgs args{.job = {.backend = *backend,
                                   .files = files_,
                                   .calibration = rows_,
                                   .work = root_ / (name + "-job"),
                                   .source = "tiny",
                                   .progress = stopping_progress(settings.stop_after, calls)},
                           .measurement = settings.measurement,
                           .measure_rows = 2,
                           .folds = settings.folds};
    Converter converter(args);
    fs::create_directories(root_ / name);
    converter.quantize(settings.bits);
    const ConvertReport report =
        converter.write(settings.bits, root_ / name, std::uint64_t{1} << 30);
    last_calls_ = calls;
    return report;
  }

  std::string bytes_of(const std::string& name) const {
    return read_file(root_ / name / "output.safetensors");
  }
  fs::path job_file(const std::string& name, const char* file) const {
    return root_ / (name + "-job") / file;
  }

  // What the logits of a written model differ by from those of the original, relative to these.
  double error_of(const std::string& name) const {
    const auto logits = [ids = ids_](const ModelFiles& files) {
      GoldenRun run("cpu", files, CacheType::kF32);
      EXPECT_EQ(run.model().spec().unknown_keys, std::vector<std::string>());
      return run.logits({random_rows(1, 40, ids).rows[0]})[0];
    };
    const std::vector<float> base = logits(files_), other = logits(open_model_folder(root_ / name));
    double sum = 0.0, power = 0.0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      sum += (base[i] - other[i]) * (base[i] - other[i]);
      power += base[i] * base[i];
    }
    return std::sqrt(sum / power);
  }

  std::string refusal(const std::string& name, const Settings& settings) {
    try {
      convert(name, settings);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }

  int last_calls_ = 0;  // of progress
  const fs::path root_ = scratch_dir("folded-conversion");
  ModelFiles files_ =
      open_model_folder(make_tiny_model("folded-model", "\"tie_word_embeddings\": true, "));
  int ids_ = kFoldedIds;
  Calibration rows_ = random_rows(6, 96, kFoldedIds);
};

// An EXL2 model like any other: norms without weights, and a head of its own.
TEST_F(FoldedConversion, IsAPlainModelThatSaysTheSame) {
  const ConvertReport report = convert("plain", {.bits = 8.0});
  EXPECT_EQ(name_of(report.folds.kept), "residual,values");
  EXPECT_LT(error_of("plain"), 0.05);
  const ModelFiles converted = open_model_folder(root_ / "plain");
  const auto backend = open_backend("cpu", {.threads = 2});
  const ModelLoader loader(*backend, converted, {});
  EXPECT_TRUE(loader.unused_tensors().empty());
  EXPECT_EQ(converted.config.at("tie_word_embeddings"), false);
  EXPECT_EQ(converted.config.at("quantization_config").at("folds"), "residual,values");
  const HostArray norm = converted.source->read("model.layers.0.input_layernorm.weight");
  for (std::int64_t i = 0; i < norm.view.shape.elements(); ++i) {
    EXPECT_EQ(static_cast<float>(norm.view.as<const Half>()[i]), 1.0f);
  }
}

TEST_F(FoldedConversion, TakesBiasesExpertsAndFusedLinears) {
  ids_ = 96;
  rows_ = random_rows(4, 64, ids_);
  for (const char* model : {"hf-tiny/llama-attention-bias", "hf-tiny/qwen2-moe", "hf-tiny/phi3"}) {
    files_ = open_model_folder(model_folder(model));
    const std::string name = case_name(model);
    convert(name, {.bits = 7.5});
    EXPECT_LT(error_of(name), 0.15) << model;
  }
}

TEST_F(FoldedConversion, GivesTheSameBytesWithAnyThreadsAndAfterAKill) {
  convert("whole", {.folds = std::nullopt});
  const int calls = last_calls_;
  convert("three", {.folds = std::nullopt, .threads = 3});
  EXPECT_EQ(bytes_of("whole"), bytes_of("three"));
  for (int stop = 1; stop < calls; stop += 3) {
    const std::string name = "killed" + std::to_string(stop);
    EXPECT_THROW(convert(name, {.folds = std::nullopt, .stop_after = stop}), Stopped) << stop;
    convert(name, {.folds = std::nullopt});
    EXPECT_EQ(bytes_of("whole"), bytes_of(name)) << stop;
  }
}

// What was chosen stays, and is not tried again.
TEST_F(FoldedConversion, AnotherRateHasTheSameFolds) {
  const FoldChoice first = convert("rates", {.folds = std::nullopt}).folds;
  ASSERT_GE(first.tried.size(), 3u);
  const int passes = first.tried.size() > 3 ? 2 : 1;  // the second one for both kinds together
  const int calls = last_calls_;
  const FoldChoice again = convert("rates", {.folds = std::nullopt, .bits = 5.0}).folds;
  EXPECT_EQ(to_json(first), to_json(again));
  EXPECT_EQ(last_calls_, calls - 3 * passes - 3);  // neither the trial nor measuring
}

// Both kinds together are tried if one of them gains something by itself.
TEST_F(FoldedConversion, ATrialOfSeveralKindsFollowsTheirGains) {
  const std::vector<TriedFolds> tried = convert("tried", {.folds = std::nullopt}).folds.tried;
  ASSERT_GE(tried.size(), 3u);
  EXPECT_TRUE(tried[0].kinds.empty());
  const bool gains = tried[1].kl < tried[0].kl || tried[2].kl < tried[0].kl;
  EXPECT_EQ(tried.size(), gains ? 4u : 3u);
}

// The trial sees that large weights of one channel make rounding lose, and rotates them away.
TEST_F(FoldedConversion, ATrialKeepsWhatHelps) {
  files_.source = std::make_shared<UnevenSource>(files_.source);
  const ConvertReport report = convert("outlier", {.folds = std::nullopt});
  ASSERT_EQ(report.folds.tried.size(), 4u);
  EXPECT_TRUE(report.folds.tried[0].kinds.empty());
  EXPECT_TRUE(report.folds.kept.contains(FoldKind::kResidual)) << to_json(report.folds);
  double least = 1e30, of_kept = 0.0;
  for (const TriedFolds& tried : report.folds.tried) {
    EXPECT_GT(tried.kl, 0.0);
    least = std::min(least, tried.kl);
    if (tried.kinds == report.folds.kept) of_kept = tried.kl;
  }
  EXPECT_EQ(of_kept, least);
  convert("upright", {.folds = FoldSet{}});
  EXPECT_LT(error_of("outlier"), error_of("upright"));
}

// Layer norms forbid the rotation of the stream: it is not tried, and refused where it is asked
// for.
TEST_F(FoldedConversion, DoesNotFoldWhatAnArchitectureForbids) {
  files_ = open_model_folder(model_folder("hf-tiny/cohere"));
  EXPECT_NE(refusal("asked", {}).find("because its norms subtract the mean"), std::string::npos)
      << refusal("asked", {});
}

TEST_F(FoldedConversion, AMeasurementKnowsItsFolds) {
  convert("first", {});
  const fs::path measurement = job_file("first", "measurement.json");
  convert("second", {.folds = std::nullopt, .measurement = measurement});
  EXPECT_EQ(bytes_of("first"), bytes_of("second"));
  const std::string why = refusal("third", {.folds = FoldSet{}, .measurement = measurement});
  EXPECT_NE(why.find("\"residual,values\""), std::string::npos) << why;
}

// A job whose folds were chosen before does not take a measurement of a model with others.
TEST_F(FoldedConversion, RefusesAMeasurementOfOtherFoldsInAJob) {
  convert("plain", {.folds = FoldSet{}});
  const fs::path measurement = job_file("plain", "measurement.json");
  convert("job", {.folds = std::nullopt, .measurement = measurement});
  write_file_atomically(job_file("job", "folds.json"), read_file(job_file("plain", "folds.json")));
  convert("other", {.folds = kBoth});
  write_file_atomically(job_file("job", "folds.json"), read_file(job_file("other", "folds.json")));
  const std::string why =
      refusal("job", {.folds = std::nullopt, .bits = 5.0, .measurement = measurement});
  EXPECT_NE(why.find("holds a model with the folds \"residual,values\""), std::string::npos) << why;
}

TEST_F(FoldedConversion, RefusesADamagedChoice) {
  convert("job", {});
  const fs::path file = job_file("job", "folds.json");
  for (const char* text : {"{}", "{\"kept\": \"all\", \"tried\": [], \"seconds\": 0}", "[1]"}) {
    write_file_atomically(file, text);
    const std::string why = refusal("job", {.bits = 5.0});
    EXPECT_NE(why.find("folds.json"), std::string::npos) << why;
  }
}

TEST_F(FoldedConversion, RefusesOtherFoldsInAJob) {
  convert("job", {});
  const std::string why = refusal("job", {.folds = FoldSet{}});
  EXPECT_NE(why.find("differs in \"folds\""), std::string::npos) << why;
}

}  // namespace
}  // namespace bl::test
