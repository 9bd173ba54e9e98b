#include "format/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "format/safetensors_folder.h"
#include "support/data.h"
#include "tensor_set.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

std::vector<TensorPlan> some_tensors() {
  return {
      plan_tensor("half", DType::kF16, {3, 5}),  plan_tensor("float", DType::kF32, {7}),
      plan_tensor("empty", DType::kF32, {0, 4}), plan_tensor("line\n\"quote\"", DType::kU8, {3}),
      {"deep", DType::kI16, {1, 2, 1, 2, 1, 2}}, plan_tensor("scalar", DType::kI64, {})};
}

// Writes random bytes, in pieces of at most `piece` bytes, and returns them by name.
template <class Writer>
std::map<std::string, std::vector<std::byte>> fill(Writer& writer, std::size_t piece) {
  std::map<std::string, std::vector<std::byte>> written;
  std::mt19937 random(3);
  for (const TensorPlan& tensor : writer.tensors()) {
    auto& bytes = written[tensor.name];
    bytes.resize(tensor.bytes());
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      writer.write(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
  }
  return written;
}

void expect_same(const TensorSource& source,
                 const std::map<std::string, std::vector<std::byte>>& written) {
  EXPECT_EQ(source.names().size(), written.size());
  for (const auto& [name, bytes] : written) {
    const HostArray array = source.read(name);
    const auto elements = static_cast<std::size_t>(array.view.shape.elements());
    ASSERT_EQ(elements * size_of(array.view.dtype), bytes.size()) << name;
    if (bytes.empty()) continue;
    EXPECT_EQ(std::memcmp(array.view.data, bytes.data(), bytes.size()), 0) << name;
  }
}

TEST(SafetensorsWriter, RoundTripsInPiecesOfAnySize) {
  const auto folder = test::scratch_dir("safetensors-writer");
  for (const std::size_t piece : {1, 5, 1000}) {
    const fs::path path = folder / fmt::format("{}.safetensors", piece);
    SafetensorsWriter writer(path, some_tensors(), {{"format", "pt"}, {"a\"b", "c\n"}});
    const auto written = fill(writer, piece);
    EXPECT_FALSE(fs::exists(path));
    writer.commit();
    const SafetensorsFile file(path);
    expect_same(file, written);
    EXPECT_EQ(file.metadata().at("a\"b"), "c\n");
    // Aligned, so that readers need no copies.
    for (const SafetensorsEntry& entry : file.entries()) {
      EXPECT_EQ(entry.begin % size_of(*entry.dtype), 0u) << entry.name;
    }
  }
}

TEST(SafetensorsWriter, LeavesNothingWithoutCommit) {
  const auto folder = test::scratch_dir("safetensors-writer");
  {
    ShardWriter writer(folder, some_tensors(), {.max_bytes = 40});
    fill(writer, 1000);
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(SafetensorsWriter, RefusesANameTwice) {
  const auto folder = test::scratch_dir("safetensors-writer");
  auto tensors = some_tensors();
  tensors.push_back(tensors[0]);
  expect_error(ErrorCode::kInvalidArgument, {"'half'", "twice"},
               [&] { SafetensorsWriter(folder / "x.safetensors", tensors); });
  expect_error(ErrorCode::kInvalidArgument, {"'half'", "twice"},
               [&] { ShardWriter(folder, tensors, {}); });
}

TEST(ShardWriter, OneFileNeedsNoIndex) {
  const auto folder = test::scratch_dir("safetensors-writer");
  ShardWriter writer(folder, some_tensors(), {});
  EXPECT_EQ(writer.file_names(), std::vector<std::string>{"model.safetensors"});
  const auto written = fill(writer, 1000);
  writer.commit();
  expect_same(SafetensorsFolder(folder), written);
  EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
}

TEST(ShardWriter, SplitsAndIndexes) {
  const auto folder = test::scratch_dir("safetensors-writer");
  // Sizes 30, 28, 0, 3, 16, 8: shards of at most 40 bytes.
  ShardWriter writer(folder, some_tensors(), {.max_bytes = 40});
  const auto written = fill(writer, 7);
  writer.commit();
  EXPECT_EQ(writer.file_names(),
            (std::vector<std::string>{
                "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  for (const std::string& name : writer.file_names()) EXPECT_TRUE(fs::exists(folder / name));
  expect_same(SafetensorsFolder(folder), written);  // which checks the index against the files
}

TEST(ShardWriter, ATensorOverTheLimitStandsAlone) {
  const auto folder = test::scratch_dir("safetensors-writer");
  ShardWriter writer(folder, some_tensors(),
                     {.base_name = "output", .max_bytes = 1, .write_index = false});
  const auto written = fill(writer, 1000);
  writer.commit();
  EXPECT_EQ(writer.file_names().size(), 5u);  // the empty tensor joins another
  EXPECT_FALSE(fs::exists(folder / "output.safetensors.index.json"));
  expect_same(SafetensorsFolder(folder), written);
}

TEST(ShardWriter, AModelWithoutTensorsIsAFileToo) {
  const auto folder = test::scratch_dir("safetensors-writer");
  ShardWriter writer(folder, {}, {});
  writer.commit();
  EXPECT_TRUE(SafetensorsFolder(folder).names().empty());
}

}  // namespace
}  // namespace bl
