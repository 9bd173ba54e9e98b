#include "convert/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../engine/word_tokenizer.h"
#include "base/error.h"
#include "base/file.h"
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
