#include "server/infill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

// Bytes are tokens; the marks have ids from 256 on.
std::unique_ptr<Tokenizer> tokenizer_with(const std::vector<std::string>& marks) {
  Json vocab = Json::object();
  for (int letter = 'a'; letter <= 'z'; ++letter) {
    vocab[std::string(1, static_cast<char>(letter))] = letter;
  }
  vocab["\xC4\x8A"] = 10;  // the line break, as byte-level vocabularies write it
  Json added = Json::array();
  int id = 256;
  for (const std::string& mark : marks) {
    vocab[mark] = id;
    added.push_back({{"id", id++}, {"content", mark}, {"special", true}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json document = {{"added_tokens", added},
                         {"pre_tokenizer", byte_level},
                         {"decoder", byte_level},
                         {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(document.dump(), "{}", "test");
}

TEST(Infill, PutsTheGapBehindBothSides) {
  const auto tokenizer = tokenizer_with({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"});
  const auto tokens = find_infill_tokens(*tokenizer);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(infill_prompt(*tokenizer, *tokens, {"ab", "cd", "e"}, 100),
            (std::vector<std::int32_t>{256, 'a', 'b', 257, 'c', 'd', 258, 'e'}));
}

TEST(Infill, KnowsModelsWithoutAMiddle) {
  const auto tokenizer = tokenizer_with({"[SUFFIX]", "[PREFIX]"});
  const auto tokens = find_infill_tokens(*tokenizer);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(infill_prompt(*tokenizer, *tokens, {"ab", "cd", ""}, 100),
            (std::vector<std::int32_t>{256, 'c', 'd', 257, 'a', 'b'}));
  EXPECT_FALSE(find_infill_tokens(*tokenizer_with({"<|fim_prefix|>", "<|fim_suffix|>"})));
  EXPECT_FALSE(find_infill_tokens(*tokenizer_with({})));
}

TEST(Infill, KeepsWhatIsNearTheGap) {
  const auto tokenizer = tokenizer_with({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"});
  const auto tokens = find_infill_tokens(*tokenizer);
  const std::string prefix(100, 'a');
  const std::vector<std::int32_t> ids =
      infill_prompt(*tokenizer, *tokens, {prefix + "xy", "z" + std::string(100, 'b'), "q"}, 45);
  EXPECT_LE(ids.size(), 45u);
  const std::vector<std::int32_t> before_suffix{'x', 'y', 257, 'z'};
  EXPECT_NE(std::search(ids.begin(), ids.end(), before_suffix.begin(), before_suffix.end()),
            ids.end());
  EXPECT_EQ(ids.back(), 'q');
}

TEST(Infill, PutsFurtherFilesInFront) {
  const auto tokenizer = tokenizer_with(
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"});
  const auto tokens = find_infill_tokens(*tokenizer);
  ASSERT_TRUE(tokens && tokens->repository && tokens->file);
  const auto ids = infill_prompt(*tokenizer, *tokens, {"a", "b", "", {{"n", "text"}}}, 200);
  EXPECT_EQ(ids.front(), 259);
  const std::vector<std::int32_t> file{260, 'n', 10, 't', 'e', 'x', 't', 260};
  EXPECT_NE(std::search(ids.begin(), ids.end(), file.begin(), file.end()), ids.end());
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 1);
  // A file that has no room is left out whole.
  const auto few =
      infill_prompt(*tokenizer, *tokens, {"a", "b", "", {{"n", std::string(300, 't')}}}, 100);
  EXPECT_EQ(std::count(few.begin(), few.end(), 't'), 1) << "of 'myproject'";
}

}  // namespace
}  // namespace bl::server
