// Files that pyarrow has written (tools/make_parquet_samples.py), whole and damaged.

#include "parquet/text_column.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

fs::path sample(const std::string& name) { return unpacked("parquet") / (name + ".parquet"); }

// The texts of the samples. `nulls`: whether rows without a value are empty texts.
std::vector<std::string> texts(bool nulls = false) {
  std::vector<std::string> all;
  for (int i = 0; i < 40; ++i) {
    std::string text;
    if (i % 7 == 3) {
      if (!nulls) continue;
    } else if (i % 5 != 4) {
      text = "row " + std::to_string(i % 11) + ": grün, ";
      for (int repeat = 0; repeat < i % 4; ++repeat) text += "abc ";
    }
    all.push_back(text);
  }
  return all;
}

// Every codec, version of pages and encoding.
std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const char* codec : {"none", "snappy", "gzip", "zstd"}) {
    for (const char* form : {"-v1-dictionary", "-v1-plain", "-v2-dictionary", "-v2-plain"}) {
      all.push_back(std::string(codec) + form);
    }
  }
  all.insert(all.end(), {"groups", "content", "other-name"});
  return all;
}

void expect_error(const fs::path& path, ErrorCode code, const std::string& says) {
  try {
    parquet::read_text_column(path);
    ADD_FAILURE() << path << " was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(ParquetTexts, ReadsEveryCodecPageAndEncoding) {
  for (const std::string& name : names()) {
    EXPECT_EQ(parquet::read_text_column(sample(name)), texts()) << name;
  }
  EXPECT_EQ(parquet::read_text_column(sample("required")), texts(true));
}

TEST(ParquetTexts, SaysWhichColumnsThereAre) {
  expect_error(sample("two-texts"), ErrorCode::kInvalidArgument,
               "2 columns of texts; rename the one that is meant to \"text\" (columns: id, "
               "tags.list.element, story, title)");
  expect_error(sample("no-text"), ErrorCode::kInvalidArgument, "0 columns of texts");
}

TEST(ParquetTexts, SaysWhatItDoesNotKnow) {
  expect_error(sample("lz4"), ErrorCode::kUnsupported, "snappy, gzip, zstd or none");
  expect_error(sample("delta"), ErrorCode::kUnsupported, "plain or dictionary encoding");
}

TEST(ParquetTexts, RefusesWhatIsNoParquetFile) {
  const fs::path file = scratch_dir("parquet") / "file.parquet";
  const std::string whole = read_file(sample("none-v1-plain"));
  write_file_atomically(file, "");
  expect_error(file, ErrorCode::kInvalidFile, "not a Parquet file");
  write_file_atomically(file, "PARE" + whole.substr(4));
  expect_error(file, ErrorCode::kUnsupported, "encrypted");
  write_file_atomically(file, whole.substr(0, whole.size() - 1));
  expect_error(file, ErrorCode::kInvalidFile, "as if it had been cut");
  std::string long_footer = whole;
  long_footer[whole.size() - 5] = '\x7f';
  write_file_atomically(file, long_footer);
  expect_error(file, ErrorCode::kInvalidFile, "footer is longer");
}

constexpr int kMutations = 250;  // of each sample

// The bytes with some left out, put in or changed.
std::string damaged(std::string bytes, std::mt19937& random) {
  const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  // The footer is where most numbers are.
  const std::size_t footer = std::min<std::size_t>(bytes.size(), 400);
  const auto place = [&] {
    return random() % 2 == 0 ? pick(bytes.size()) : bytes.size() - 1 - pick(footer);
  };
  switch (random() % 4) {
    case 0:
      bytes.erase(place(), 1 + pick(8));
      break;
    case 1:
      bytes.insert(place(), 1 + pick(8), static_cast<char>(random()));
      break;
    default:
      for (std::size_t i = 0; i < 1 + pick(4); ++i) {
        char& byte = bytes[place()];
        byte = random() % 2 == 0 ? static_cast<char>(random())
                                 : static_cast<char>(byte ^ 1 << pick(8));
      }
  }
  return bytes;
}

std::vector<std::string> read_bytes(const std::string& bytes) {
  return parquet::read_text_column(std::as_bytes(std::span(bytes)), "damaged");
}

// A damaged file ends with an error or gives texts; nothing else, and it takes no large memory.
TEST(ParquetTexts, SurvivesDamage) {
  std::mt19937 random(11);
  std::vector<std::string> all = names();
  all.insert(all.end(), {"required", "lz4", "delta", "two-texts", "no-text"});
  std::size_t errors = 0, right = 0;
  for (const std::string& name : all) {
    const std::string whole = read_file(sample(name));
    for (int i = 0; i < kMutations; ++i) {
      try {
        right += read_bytes(damaged(whole, random)) == texts() ? 1 : 0;
      } catch (const Error& error) {
        ++errors;
        EXPECT_NE(error.code(), ErrorCode::kOutOfMemory) << error.what();
        EXPECT_TRUE(std::string(error.what()).starts_with("damaged")) << error.what();
      }
    }
  }
  // Some damage is seen, and some is where no reader looks.
  EXPECT_GT(errors, all.size() * kMutations / 2);
  EXPECT_GT(right, all.size() * kMutations / 20);
}

// No beginning of a file is taken for a whole one.
TEST(ParquetTexts, SurvivesTruncation) {
  for (const char* name : {"snappy-v2-dictionary", "zstd-v1-plain"}) {
    const std::string whole = read_file(sample(name));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THROW(read_bytes(whole.substr(0, size)), Error) << name << ' ' << size;
    }
  }
}

}  // namespace
}  // namespace bl::test
