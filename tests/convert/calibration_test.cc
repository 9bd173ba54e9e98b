#include "convert/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../engine/tiny_model.h"
#include "../engine/word_tokenizer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/data.h"

namespace bl::test {
namespace {

class CalibrationTest : public testing::Test {
 protected:
  CalibrationTest() : tokenizer_(make_word_tokenizer({"a", "b", "Ġ", "Ċ"})) {}
  std::filesystem::path write(const char* name, const std::string& text) {
    write_file_atomically(folder_ / name, text);
    return folder_ / name;
  }
  static std::string words(const char* word, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += std::string(word) + " ";
    return text;
  }
  Calibration read(std::vector<CalibrationFile> files, std::int64_t rows, std::uint64_t seed = 1) {
    return read_calibration({.tokenizer = *tokenizer_,
                             .files = std::move(files),
                             .rows = rows,
                             .length = 8,
                             .seed = seed});
  }
  std::filesystem::path folder_ = scratch_dir("calibration");
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(CalibrationTest, GivesEachFileItsShare) {
  const auto a = write("a.txt", words("a", 400));
  const auto b = write("b.jsonl", "{\"text\": \"" + words("b", 200) +
                                      "\"}\n\n{\"messages\": [{\"role\": "
                                      "\"user\", \"content\": \"" +
                                      words("b", 200) + "\"}]}\n");
  const Calibration rows = read({{a, 3.0}, {b, 1.0}}, 8);
  ASSERT_EQ(rows.rows.size(), 8u);
  EXPECT_EQ(rows.tokens(), 64);
  const auto only_a = tokenizer_->encode(words("a", 400), {.add_special = false});
  int of_a = 0;
  for (const auto& row : rows.rows) {
    EXPECT_EQ(row.size(), 8u);
    of_a += std::search(only_a.begin(), only_a.end(), row.begin(), row.end()) != only_a.end();
  }
  EXPECT_EQ(of_a, 6);
  EXPECT_EQ(rows.sources.size(), 2u);
  EXPECT_EQ(rows.dataset, "a.txt, b.jsonl");
}

// The chat template writes special tokens; a text that spells one does not.
TEST_F(CalibrationTest, RendersMessages) {
  tokenizer_ = make_word_tokenizer({"a", "b", "Ġ", "Ċ"}, {"ab"});
  constexpr std::int32_t kSpecial = 4;
  // Twice, so that there is a row to hold out, which is the same.
  const std::string lines =
      "{\"text\": \"ab\"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
      "{\"text\": \"b\"}\n";
  const auto file = write("chats.jsonl", lines + lines);
  const auto read_one = [&](std::function<std::string(const OrderedJson&)> render,
                            std::int64_t length) {
    const CalibrationArgs args{.tokenizer = *tokenizer_,
                               .render = std::move(render),
                               .files = {{file}},
                               .rows = 1,
                               .length = length};
    return read_calibration(args).rows.at(0);
  };
  const auto render = [](const OrderedJson& messages) {
    return "ab" + messages.at(0).at("content").get<std::string>() + "a";
  };
  EXPECT_EQ(read_one(render, 6), (std::vector<std::int32_t>{0, 1, kSpecial, 0, 0, 1}));
  EXPECT_EQ(read_one(nullptr, 4), (std::vector<std::int32_t>{0, 1, 0, 1}));
  try {
    read_one([](const OrderedJson&) -> std::string { fail(ErrorCode::kInvalidArgument, "no"); }, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("chats.jsonl line 2: no"), std::string::npos)
        << error.what();
  }
}

// Messages whose contents are parts have the texts of these, in a file of any case.
TEST_F(CalibrationTest, ReadsPartsOfMessages) {
  const auto lines = [](const std::string& content) {
    return "{\"messages\": [{\"role\": \"user\", \"content\": " + content + "}]}\n";
  };
  const std::string text = words("b", 100);
  const auto plain = write("plain.jsonl", lines("\"" + text + "\""));
  const auto parts = write("parts.JSONL", lines("[{\"type\": \"text\", \"text\": \"" + text +
                                                "\"}, {\"type\": \"image\"}, 3]"));
  EXPECT_EQ(read({{plain}}, 4).rows, read({{parts}}, 4).rows);
  for (const char* messages : {"[]", "[1, null]"}) {
    const auto bad = write("bad.jsonl", std::string("{\"messages\": ") + messages + "}\n");
    EXPECT_THROW(read({{bad}}, 1), Error) << messages;
  }
}

TEST_F(CalibrationTest, ReadsParquet) {
  tokenizer_ = Tokenizer::load(make_tiny_model("calibration-model"));
  const Calibration rows = read({{unpacked("parquet") / "zstd-v2-dictionary.parquet"}}, 20);
  ASSERT_EQ(rows.rows.size(), 20u);
  EXPECT_EQ(rows.dataset, "zstd-v2-dictionary.parquet");
  std::string all;
  for (const auto& row : rows.rows) all += tokenizer_->decode(row, false);
  EXPECT_NE(all.find("row"), std::string::npos) << all;
}

// Rows that are held out are no others' rows, and the seed
// chooses them.
TEST_F(CalibrationTest, HoldsRowsOut) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += (i * i * i) % 11 < 5 ? "a " : "b ";
  const auto file = write("c.txt", text);
  EXPECT_EQ(held_out_beside(1), 1);
  EXPECT_EQ(held_out_beside(64), 2);
  const Calibration some = read({{file}}, 64, 7);
  EXPECT_EQ(some.rows.size(), 64u);
  EXPECT_EQ(some.held_out.size(), 2u);
  EXPECT_EQ(some.held_out_tokens(), 16);
  EXPECT_EQ(some.held_out, read({{file}}, 64, 7).held_out);
  EXPECT_NE(some.held_out, read({{file}}, 64, 8).held_out);
  // All rows of a file: each is there once, on one side.
  const auto ids = tokenizer_->encode(words("a", 64) + words("b", 8), {.add_special = false});
  const auto other = write("d.txt", words("a", 64) + words("b", 8));
  const Calibration all = read({{other}}, std::ssize(ids) / 8 - 1);
  std::vector<std::vector<std::int32_t>> seen = all.rows, expected;
  seen.insert(seen.end(), all.held_out.begin(), all.held_out.end());
  for (auto at = ids.begin(); ids.end() - at >= 8; at += 8) expected.emplace_back(at, at + 8);
  std::sort(seen.begin(), seen.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(seen, expected);
}

TEST_F(CalibrationTest, DependsOnTheSeedAlone) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += (i * i) % 7 < 3 ? "a " : "b ";
  const auto file = write("c.txt", text);
  EXPECT_EQ(read({{file}}, 5, 7).rows, read({{file}}, 5, 7).rows);
  EXPECT_NE(read({{file}}, 5, 7).rows, read({{file}}, 5, 8).rows);
}

TEST_F(CalibrationTest, SaysWhatIsWrong) {
  const auto brief = write("brief.txt", "a b a");
  const auto broken = write("broken.jsonl", "{\"text\": \"a\"}\n{\"title\": \"b\"}\n");
  const auto expect = [&](const std::filesystem::path& file, const std::string& says) {
    try {
      read({{file}}, 2);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  expect(brief, "rows of 8");
  expect(broken, "line 2");
}

}  // namespace
}  // namespace bl::test
