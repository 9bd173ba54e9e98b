// Whole conversions of tiny models on the card, beside those on the host.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "../model/golden.h"
#include "backend/registry.h"
#include "base/file.h"
#include "convert/converter.h"
#include "convert/gptq_converter.h"
#include "format/safetensors_folder.h"
#include "random_rows.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class CardConversion : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  }

  ConversionJob job(const std::string& name, Backend& backend) const {
    return {.backend = backend,
            .files = files_,
            .calibration = rows_,
            .work = root_ / (name + "-job"),
            .source = "tiny"};
  }
  fs::path folder(const std::string& name) const {
    fs::create_directories(root_ / name);
    return root_ / name;
  }

  ConvertReport convert(const std::string& name, const std::string& device) {
    const auto backend = open_backend(device, {.threads = 2});
    const ConvertArgs args{.job = job(name, *backend), .measure_rows = 2};
    Converter converter(args);
    converter.quantize(4.0);
    return converter.write(4.0, folder(name), std::uint64_t{1} << 30);
  }
  ConvertReport convert_gptq(const std::string& name, const std::string& device) {
    const auto backend = open_backend(device, {.threads = 2});
    const GptqConvertArgs args{.job = job(name, *backend), .layout = {.bits = 4, .group_size = 32}};
    GptqConverter converter(args);
    converter.quantize();
    return converter.write(folder(name), std::uint64_t{1} << 30);
  }
  std::string bytes_of(const std::string& name) const {
    return read_file(root_ / name / "output.safetensors");
  }
  // Few positions of a tiny model: single codes that turn over move its figures by more than they
  // do in a real one, its perplexity by 3 % on an H200. `kl`: by how much its divergence may
  // differ, relatively.
  static void expect_close(const ConvertReport& card, const ConvertReport& host, double kl = 0.1) {
    EXPECT_NEAR(card.quality.kl / host.quality.kl, 1.0, kl);
    EXPECT_NEAR(card.quality.quantized_perplexity / host.quality.quantized_perplexity, 1.0, 0.06);
    ASSERT_EQ(card.linears.size(), host.linears.size());
    for (std::size_t i = 0; i < card.linears.size(); ++i) {
      EXPECT_EQ(card.linears[i].key, host.linears[i].key);
    }
  }

  fs::path root_ = scratch_dir("card-conversion");
  ModelFiles files_ = open_model_folder(make_tiny_model("card-conversion-model"));
  Calibration rows_ = random_rows(6, 96, 256);
};

TEST_F(CardConversion, GivesTheSameBytesTwiceAndTheQualityOfTheHost) {
  const ConvertReport host = convert("host", "cpu"), card = convert("card", cuda_backend());
  expect_close(card, host);
  convert("again", cuda_backend());
  EXPECT_EQ(bytes_of("card"), bytes_of("again"));
}

TEST_F(CardConversion, OfGptqHasTheQualityOfTheHost) {
  files_ = open_model_folder(model_folder("hf-tiny/llama-attention-bias"));
  rows_ = random_rows(4, 64, 256);
  expect_close(convert_gptq("card", cuda_backend()), convert_gptq("host", "cpu"));
}

// Routed experts, whose inputs are gathered from kept rows. On the host, a change of the damping by
// a thousandth moves the divergence of this model by a tenth.
TEST_F(CardConversion, OfExpertsHasTheQualityOfTheHost) {
  files_ = open_model_folder(model_folder("hf-tiny/mixtral"));
  rows_ = random_rows(2, 96, 96);
  expect_close(convert("card", cuda_backend()), convert("host", "cpu"), 0.3);
}

}  // namespace
}  // namespace bl::test
