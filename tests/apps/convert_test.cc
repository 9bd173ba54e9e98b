// `bitloom convert` as users run it.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class ConvertCommand : public testing::Test {
 protected:
  ConvertCommand() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
    write_file_atomically(root_ / "text.txt", text);
  }

  ProgramResult convert(std::vector<std::string> options, const char* work = "work") const {
    std::vector<std::string> words{
        "convert", "-i", model_, "-o", root_ / work, "-cf", root_ / "out", "-c", root_ / "text.txt",
        "-r",      "3",  "-mr",  "1",  "-l",         "64",  "--threads",   "1"};
    words.insert(words.end(), options.begin(), options.end());
    return run_program(words);
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  std::string weights(const char* folder) const {
    return read_file(root_ / folder / "output.safetensors");
  }

  fs::path root_ = scratch_dir("convert-command");
  fs::path model_ = make_tiny_model("convert-command-model");
};

TEST_F(ConvertCommand, MakesSeveralRatesAndOneReport) {
  const std::vector<std::string> options{"-b", "3.5,5", "--json", "--report", root_ / "page.html"};
  const ProgramResult result = convert(options);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = parse_json(result.out, "the report");
  ASSERT_EQ(json.at("results").size(), 2u);
  EXPECT_EQ(json["results"][1]["target_bits"], 5.0);
  EXPECT_EQ(json["results"][1]["folder"], (root_ / "out-5.0bpw").string());
  EXPECT_EQ(json["results"][1]["bytes"], weights("out-5.0bpw").size());
  EXPECT_GT(json["results"][0]["held_out"]["kl"], json["results"][1]["held_out"]["kl"]);
  EXPECT_TRUE(contains(read_file(root_ / "page.html"), "<h2>3.5bpw</h2>"));
  // What will be done is said first; a random model has no sensible perplexity.
  EXPECT_TRUE(contains(result.err, "measured once; 3.5bpw, 5.0bpw")) << result.err;
  EXPECT_TRUE(contains(result.err, "of calibration")) << result.err;
  EXPECT_TRUE(contains(result.err, "warning: 3.5bpw: the perplexity of the rows held out"))
      << result.err;
  // Again, and with one result gone: what is there stays, and the report is the same.
  const std::string before = weights("out-3.5bpw");
  fs::remove_all(root_ / "out-3.5bpw");
  const ProgramResult again = convert(options);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, result.out);
  EXPECT_EQ(weights("out-3.5bpw"), before);
}

TEST_F(ConvertCommand, RefusesFoldersThatItHasNotWritten) {
  ASSERT_EQ(convert({"-b", "4"}).status, 0);
  EXPECT_EQ(convert({"-b", "4"}).status, 0);
  for (const auto& [bits, work] : {std::pair("5", "work"), std::pair("4", "other")}) {
    const ProgramResult result = convert({"-b", bits}, work);
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, "is not empty")) << result.err;
  }
  EXPECT_FALSE(fs::exists(root_ / "other"));
}

// A result counts as finished only with the weight files that were written.
TEST_F(ConvertCommand, NoticesThatAResultIsGone) {
  ASSERT_EQ(convert({"-b", "4"}).status, 0);
  const std::string before = weights("out");
  EXPECT_EQ(convert({"-b", "4"}).status, 0);
  fs::remove(root_ / "out" / "output.safetensors");
  EXPECT_NE(convert({"-b", "4"}).status, 0);  // the folder is not empty
  EXPECT_EQ(convert({"-b", "4", "--force"}).status, 0);
  EXPECT_EQ(weights("out"), before);
}

// A folder to which OUT is a link gets the model.
TEST_F(ConvertCommand, FollowsALink) {
  fs::create_directory(root_ / "disk");
  fs::create_directory_symlink(root_ / "disk", root_ / "out");
  const ProgramResult result = convert({"-b", "4"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(fs::is_symlink(root_ / "out"));
  EXPECT_TRUE(fs::exists(root_ / "disk" / "output.safetensors"));
}

// What cannot work is refused before the model has written its own calibration.
TEST_F(ConvertCommand, IsRefusedBeforeCalibrationIsWritten) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-b", "4", "-hb", "7"}, "7"},
      {{"-b", "2"}, "cannot be reached"},
      {{"--target-size", "1kB"}, "--target-size"},
      {{"-b", "4", "-m", root_ / "none.json"}, "none.json"}};
  for (const auto& [options, message] : cases) {
    std::vector<std::string> words{"convert", "-i",          model_,      "-o", root_ / "self",
                                   "-cf",     root_ / "out", "--threads", "1"};
    words.insert(words.end(), options.begin(), options.end());
    const ProgramResult result = run_program(words);
    EXPECT_NE(result.status, 0) << message;
    EXPECT_TRUE(contains(result.err, message)) << result.err;
    EXPECT_FALSE(fs::exists(root_ / "self")) << message;
  }
}

TEST_F(ConvertCommand, ChoosesTheRateByTheSizeOfTheFiles) {
  const ProgramResult small = convert({"--target-size", "20000"});
  EXPECT_NE(small.status, 0);
  EXPECT_TRUE(contains(small.err, "is too small: this model needs from")) << small.err;
  EXPECT_FALSE(fs::exists(root_ / "work" / "measurement.json"));
  const ProgramResult result = convert({"--target-size", "56kB", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::size_t bytes = weights("out").size();
  EXPECT_LE(bytes, 56000u);
  EXPECT_GT(bytes, 55500u);
  // The same again names the same rate and finds its result.
  EXPECT_EQ(convert({"--target-size", "56kB", "--json"}).out, result.out);
}

TEST_F(ConvertCommand, ChoosesTheRateByTheMemoryOfACard) {
  const ProgramResult small = convert({"--vram", "1MiB", "--ctx", "512"});
  EXPECT_NE(small.status, 0);
  EXPECT_TRUE(contains(small.err, "--vram 1.0 MiB is too small")) << small.err;
  // The size that the least rate needs, and a little more: `inspect` agrees that it fits.
  const std::size_t at = small.err.find("needs from ");
  ASSERT_NE(at, std::string::npos) << small.err;
  const auto least = std::stoull(small.err.substr(at + 11));
  const std::string limit = std::to_string(least + 6000);
  const ProgramResult result = convert({"--vram", limit, "--ctx", "512"});
  ASSERT_EQ(result.status, 0) << result.err;
  const ProgramResult inspected = run_program(
      {"inspect", root_ / "out", "--backend", "cuda", "--ctx", "512", "--vram", limit, "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  const Json plan = parse_json(inspected.out, "the plan").at("plan");
  EXPECT_EQ(plan.at("fits"), true);
  const auto needed =
      plan.at("total").get<std::uint64_t>() + plan.at("driver").get<std::uint64_t>();
  EXPECT_LE(needed, least + 6000);
  EXPECT_GT(needed, least);
}

// A measurement that is written serves another job, which gives the same bytes.
TEST_F(ConvertCommand, MeasurementsAreWrittenAndRead) {
  const std::string file = root_ / "measured.json";
  const auto run = [&](const char* work, std::vector<std::string> options, const char* rows = "3") {
    std::vector<std::string> words{
        "convert", "-i", model_, "-o", root_ / work, "-c", root_ / "text.txt", "-r", rows,
        "-mr",     "1",  "-l",   "64", "--threads",  "1"};
    words.insert(words.end(), options.begin(), options.end());
    return run_program(words);
  };
  ASSERT_EQ(run("first", {"-om", file}).status, 0);
  const ProgramResult result = run("second", {"-m", file, "-b", "4", "-cf", root_ / "read"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "already measured")) << result.err;
  EXPECT_FALSE(fs::exists(root_ / "second" / "measurement.json"));
  ASSERT_EQ(convert({"-b", "4"}).status, 0);
  EXPECT_EQ(weights("read"), weights("out"));
  EXPECT_NE(run("first", {"-om", file, "-cf", root_ / "read"}).status, 0);
  // 192 tokens are less than four for each of 64 inputs.
  constexpr const char* kFew = "192 tokens of calibration are few for linears of 64 inputs";
  EXPECT_TRUE(contains(result.err, kFew)) << result.err;
  const ProgramResult enough = run("third", {"-om", file}, "4");
  ASSERT_EQ(enough.status, 0) << enough.err;
  EXPECT_FALSE(contains(enough.err, "are few")) << enough.err;
}

// The options of the reference decide; nothing is predicted then.
TEST_F(ConvertCommand, ReadsMeasurementsOfTheReference) {
  Json document{{"measurement", Json::object()}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    for (const auto& [module, linears] :
         {std::pair(at + ".self_attn", std::vector{"q_proj", "k_proj", "v_proj", "o_proj"}),
          std::pair(at + ".mlp", std::vector{"gate_proj", "up_proj", "down_proj"})}) {
      for (const int bits : {3, 6}) {
        Json option{{"accuracy", 1.0 - 0.3 / bits}};
        for (const char* linear : linears) {
          option[linear] = {
              {"bits", {bits}}, {"bits_prop", {1.0}}, {"group_size", {{std::to_string(bits), 32}}}};
        }
        document["measurement"][module].push_back(option);
      }
    }
  }
  write_file_atomically(root_ / "reference.json", json_text(document));
  const ProgramResult result = convert(
      {"-m", root_ / "reference.json", "-b", "5.8", "--json", "--report", root_ / "p.html"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "the report").at("results").at(0);
  EXPECT_EQ(report.at("predicted_kl"), nullptr);
  EXPECT_GT(report.at("held_out").at("kl"), 0.0);
  std::set<int> widths;
  for (const Json& linear : report.at("linears")) {
    if (linear.at("key") != "lm_head") widths.insert(static_cast<int>(linear.at("bits")));
  }
  EXPECT_EQ(widths, (std::set<int>{3, 4, 7}));  // 3 and 6 bits with what scales take
  EXPECT_FALSE(contains(result.err, "predicted")) << result.err;
}

TEST_F(ConvertCommand, SaysWhatIsWrongBeforeItStarts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-b", "4", "--target-size", "1GiB"}, "give one of -b, --target-size and --vram"},
      {{"-b", "4,4.0"}, "occurs twice"},
      {{"-b", "4,9"}, "9 is not in 2 … 8"},
      {{"-b", "4,"}, "-b"},
      {{"--ctx", "512"}, "--vram SIZE"},
      {{"--report", root_ / "none" / "page.html"}, "there is no folder"},
      {{"-b", "2"}, "2 bits per weight cannot be reached"},
      {{"-r", "4000000", "-l", "32"}, "text.txt"},
      {{"-r", "9223372036854775807"}, "-r: 9223372036854775807 is not in"},
      {{"-hb", "4294967302"}, "-hb: 4294967302 is not in"},
      {{"--correction", "-3"}, "--correction: -3 is not in"},
      {{"--damping", "-1"}, "--damping: -1 is not in"},
      {{"--sensitivity_tokens", "9223372036854775807"}, "--sensitivity_tokens: "},
      {{"-c", std::string(root_ / "text.txt") + ":inf"}, "-c "},
      {{"-c", std::string(root_ / "text.txt") + ":1e308"}, "1,000,000 at most"},
      {{"--asym"}, "go with --format gptq"},
      {{"--group_size", "32"}, "go with --format gptq"},
      {{"-cf", root_ / "work"}, "cannot be in the working folder"},
      {{"-cf", root_ / "work" / "4.0bpw"}, "cannot be in the working folder"},
      {{"-cf", root_}, "cannot be in the working folder"},
      {{"-cf", root_ / "text.txt" / "out"}, "is no folder"},
  };
  for (const auto& [options, message] : cases) {
    const ProgramResult result = convert(options);
    EXPECT_NE(result.status, 0) << message;
    EXPECT_TRUE(contains(result.err, message)) << result.err;
    EXPECT_FALSE(fs::exists(root_ / "work" / "measurement.json"));
  }
}

}  // namespace
}  // namespace bl::test
