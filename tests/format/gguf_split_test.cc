#include "format/gguf_split.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "format/gguf_file.h"
#include "gguf_bytes.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::GgufBytes;

GgufBytes shard(std::uint32_t number, std::uint32_t count) {
  return GgufBytes().add("split.no", number).add("split.count", count);
}

class GgufSplit : public testing::Test {
 protected:
  void write(int number, const GgufBytes& file) {
    write_file_atomically(folder_ / fmt::format("m-{:05}-of-00003.gguf", number), file.bytes());
  }
  void write_all() {
    write(
        1,
        shard(0, 3).add("general.name", "first").add("split.tensors.count", 3u).ramp("a", {4}, 1));
    write(2, shard(1, 3).add("general.name", "second").ramp("b", {4}, 2));
    write(3, shard(2, 3).ramp("c", {4}, 3));
  }
  std::string message(ErrorCode code, int number = 1) {
    return error_of([&] { open(number); }, code);
  }
  std::shared_ptr<const GgufFile> open(int number) {
    return GgufFile::open(folder_ / fmt::format("m-{:05}-of-00003.gguf", number));
  }
  fs::path folder_ = test::scratch_dir("gguf-split");
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(GgufShardName, IsReadFromTheEnd) {
  const auto name = parse_gguf_shard_name("x/a-00001-of-00002-00003-of-00004.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "a-00001-of-00002");
  EXPECT_EQ(name->number, 3);
  EXPECT_EQ(name->count, 4);
  EXPECT_EQ(name->of(4), "a-00001-of-00002-00004-of-00004.gguf");
  for (const char* other :
       {"a.gguf", "a-1-of-2.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf",
        "a-00001-of-00002.bin", "a-0000x-of-00002.gguf", "a-00001_of-00002.gguf", ".gguf"}) {
    EXPECT_FALSE(parse_gguf_shard_name(other)) << other;
    EXPECT_EQ(gguf_shards(other), std::vector<fs::path>{other});
  }
}

TEST_F(GgufSplit, AnyShardOpensTheWholeModel) {
  write_all();
  for (int number = 1; number <= 3; ++number) {
    const auto file = open(number);
    EXPECT_EQ(file->text("general.name"), "first");
    EXPECT_TRUE(file->name().ends_with("m-00001-of-00003.gguf")) << file->name();
    ASSERT_EQ(file->tensors().size(), 3u);
    for (const char* name : {"a", "b", "c"}) {
      const GgufTensor* tensor = file->find_tensor(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->name, name);
      const auto* values = reinterpret_cast<const float*>(tensor->bytes.data());
      EXPECT_EQ(values[3], 3.0f * static_cast<float>(name[0] - 'a' + 1));
      file->done_with(tensor->bytes);
      EXPECT_EQ(values[3], 3.0f * static_cast<float>(name[0] - 'a' + 1));
    }
  }
}

TEST_F(GgufSplit, ShardsThatAreMissingAreNamed) {
  write_all();
  fs::remove(folder_ / "m-00001-of-00003.gguf");
  fs::remove(folder_ / "m-00003-of-00003.gguf");
  const std::string missing = message(ErrorCode::kNotFound, 2);
  EXPECT_TRUE(has(missing,
                  "3 files, these are missing: m-00001-of-00003.gguf, "
                  "m-00003-of-00003.gguf; fetch them"))
      << missing;
}

TEST_F(GgufSplit, AFileWithAnotherNameIsToldWhichItNeeds) {
  write_all();
  const fs::path renamed = folder_ / "part.gguf";
  fs::copy_file(folder_ / "m-00002-of-00003.gguf", renamed);
  const std::string other = error_of([&] { GgufFile::open(renamed); }, ErrorCode::kInvalidFile);
  EXPECT_TRUE(has(other, "part 2 of a model in 3 files")) << other;
  EXPECT_TRUE(has(other, "-00001-of-00003.gguf")) << other;
}

TEST_F(GgufSplit, ShardsThatDoNotFitTogetherAreRefused) {
  write_all();
  write(2, shard(2, 3).ramp("b", {4}, 2));
  EXPECT_TRUE(has(message(ErrorCode::kInvalidFile), "stands for part 2 of 3"));
  write(2, shard(1, 4).ramp("b", {4}, 2));
  EXPECT_TRUE(has(message(ErrorCode::kInvalidFile), "part 2 of a model in 4 files"));
  write(2, GgufBytes().ramp("b", {4}, 2));
  EXPECT_TRUE(has(message(ErrorCode::kInvalidFile), "part 1 of a model in 1 files"));
  write(2, shard(1, 3).ramp("a", {4}, 2));
  EXPECT_TRUE(has(message(ErrorCode::kInvalidFile), "tensor a occurs in two"));
  write(2, shard(1, 3).ramp("b", {4}, 2).ramp("d", {4}, 2));
  EXPECT_TRUE(has(message(ErrorCode::kInvalidFile), "split.tensors.count is 3, but"));
  write(2, shard(1, 3).add("split.count", "3").ramp("b", {4}, 2));
  message(ErrorCode::kInvalidFile);
}

TEST(GgufSplitInMemory, NeedsAllShards) {
  const std::string first = shard(0, 2).ramp("a", {4}, 1).bytes();
  const std::string second = shard(1, 2).ramp("b", {4}, 1).bytes();
  const auto file = GgufFile::parse({{test::as_span(first), "1"}, {test::as_span(second), "2"}});
  EXPECT_EQ(file->tensors().size(), 2u);
  const std::string alone =
      error_of([&] { GgufFile::parse(test::as_span(first), "1"); }, ErrorCode::kInvalidFile);
  EXPECT_TRUE(has(alone, "part 1 of a model in 2 files, but it stands for part 1 of 1")) << alone;
}

}  // namespace
}  // namespace bl
