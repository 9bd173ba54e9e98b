// Four real tokenizers against 644 cases of the reference. They are not ours to commit; without
// them the test is skipped.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "base/json.h"
#include "support/data.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

void unpack(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::string command = "xz -dc '" + from.string() + "' > '" + to.string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(TokenizerShared, RealTokenizers) {
  const auto shared = test::shared_dir() / "tokenizers";
  if (!std::filesystem::exists(shared / "goldens.jsonl.xz")) {
    GTEST_SKIP() << "no shared/tokenizers (BITLOOM_DATA): 644 cases were not checked";
  }
  const auto work = test::scratch_dir("real-tokenizers");
  unpack(shared / "goldens.jsonl.xz", work / "goldens.jsonl");
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::ifstream in(work / "goldens.jsonl");
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const Json golden = parse_json(line, "goldens.jsonl");
    const std::string name = golden["tokenizer"].get<std::string>();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) {
      std::filesystem::create_directories(work / name);
      unpack(shared / name / "tokenizer.json.xz", work / name / "tokenizer.json");
      tokenizer = Tokenizer::load(work / name);
    }
    const std::string text = golden["text"].get<std::string>();
    const Ids ids = golden["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text), ids) << name << golden["text"];
    EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), golden["ids_no_special"].get<Ids>())
        << name << golden["text"];
    EXPECT_EQ(tokenizer->decode(ids, false), golden["decoded"].get<std::string>()) << name;
    EXPECT_EQ(tokenizer->decode(ids, true), golden["decoded_skip_special"].get<std::string>())
        << name;
    TextStream stream(*tokenizer, false);
    std::string streamed;
    for (const auto id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), golden["decoded"].get<std::string>()) << name;
  }
  EXPECT_EQ(cases, 644);
  std::filesystem::remove_all(work);
}

}  // namespace
}  // namespace bl
