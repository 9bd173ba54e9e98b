// What `convert --format gptq` refuses before it computes anything, and what it warns of.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

ProgramResult convert_tiny(const fs::path& folder, std::vector<std::string> options) {
  static const fs::path model = make_tiny_model("gptq-convert-model");  // a job knows its times
  write_file_atomically(folder / "text.txt", std::string(4000, 'a'));
  std::vector<std::string> arguments{"convert",
                                     "-i",
                                     model.string(),
                                     "-o",
                                     (folder / "job").string(),
                                     "-cf",
                                     (folder / "out").string(),
                                     "-c",
                                     (folder / "text.txt").string(),
                                     "-r",
                                     "2",
                                     "-l",
                                     "64"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_program(arguments);
}

// The model's keys and values have 16 outputs.
TEST(GptqConvert, SaysWhichLinearsStayAsTheyAre) {
  const fs::path folder = scratch_dir("gptq-convert-plain");
  const ProgramResult result = convert_tiny(folder, {"--format", "gptq", "-b", "4"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("4 linears stay in binary16"), std::string::npos) << result.err;
  EXPECT_TRUE(fs::exists(folder / "out" / "model.safetensors"));
}

TEST(GptqConvert, ReportsAgainWhatIsFinished) {
  const fs::path folder = scratch_dir("gptq-convert-again");
  const std::vector<std::string> options{"--format", "gptq", "-b", "4", "--json"};
  const ProgramResult first = convert_tiny(folder, options), again = convert_tiny(folder, options);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
}

TEST(GptqConvert, NamesTheReadersThatWantVersion2) {
  struct Case {
    std::vector<std::string> options;
    std::string part;  // of the warning; empty: there is none
  };
  for (const Case& c : std::vector<Case>{
           {{"--format", "gptq", "-b", "4"}, ""},
           {{"--format", "gptq", "-b", "3"}, "misread files with 3 bits"},
           {{"--format", "gptq", "-b", "4", "--asym"}, "refuse files with free zero points"},
           {{"--format", "gptq_v2", "-b", "3", "--asym"}, ""}}) {
    const ProgramResult result = convert_tiny(scratch_dir("gptq-convert-readers"), c.options);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err.find("give --format gptq_v2") != std::string::npos, !c.part.empty());
    EXPECT_NE(result.err.find(c.part), std::string::npos) << result.err;
  }
}

TEST(GptqConvert, RefusesWhatTheFormatDoesNotHave) {
  struct Case {
    std::vector<std::string> options;
    int status;
    std::string part;
  };
  const fs::path folder = scratch_dir("gptq-convert");
  for (const Case& c : std::vector<Case>{
           {{"--format", "gptq"}, 2, "-b 2, 3, 4 or 8"},
           {{"--format", "gptq", "-b", "5"}, 1, "2, 3, 4 or 8 bits, not 5"},
           {{"--format", "gptq_v2", "-b", "4", "--group_size", "40"}, 1, "a multiple of 32"},
           {{"--format", "gptq", "-b", "4", "--desc_act", "--natural_order"}, 2, "exclude"},
           {{"--format", "gptq", "-b", "4", "-hb", "6"},
            2,
            "-hb, -mr and --sensitivity_tokens go with EXL2 only"},
           {{"--format", "gptq", "-b", "4", "-mr", "4"},
            2,
            "-hb, -mr and --sensitivity_tokens go with EXL2 only"},
           {{"--format", "gptq", "-b", "4", "--sensitivity_tokens", "64"},
            2,
            "-hb, -mr and --sensitivity_tokens go with EXL2 only"},
           {{"--sensitivity_tokens", "31"}, 2, "--sensitivity_tokens: 31 is not in 32"},
           {{"--format", "gguf"}, 2, "should be exl2, gptq or gptq_v2"}}) {
    const ProgramResult result = convert_tiny(folder, c.options);
    EXPECT_EQ(result.status, c.status) << result.err;
    EXPECT_NE(result.err.find(c.part), std::string::npos) << c.part << ": " << result.err;
    EXPECT_FALSE(fs::exists(folder / "out"));
  }
}

}  // namespace
}  // namespace bl::test
