#include "format/safetensors_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/file.h"
#include "support/data.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using test::file_of;
using test::open_bytes;
using test::open_set;
using test::raw;
using test::TensorSet;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(SafetensorsFile, FindsAndReads) {
  const auto folder = test::scratch_dir("safetensors-file");
  write_file_atomically(
      folder / "a.safetensors",
      text_of(file_of(TensorSet{{"x", raw("F32", {2, 2}, std::vector<float>{1, 2, 3, 4})},
                                {"none", raw("I64", {0}, std::vector<std::int64_t>{})},
                                {"scalar", raw("I32", {}, std::vector<std::int32_t>{-5})}})));
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"none", "scalar", "x"}));
  EXPECT_EQ(file.find("y"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
  EXPECT_EQ(file.find("x")->shape.to_string(), "[2, 2]");
  EXPECT_NE(file.find("x")->file.find("a.safetensors"), std::string::npos);
  EXPECT_EQ(file.read("x").view.row<float>(1)[1], 4.0f);
  EXPECT_EQ(file.read("scalar").view.as<std::int32_t>()[0], -5);
  EXPECT_EQ(file.read("scalar").view.shape.rank(), 0);
  EXPECT_EQ(file.read("none").view.shape.elements(), 0);
  file.done_with("x");  // pages may go; the bytes come back from the file
  EXPECT_EQ(file.read("x").view.as<float>()[0], 1.0f);
  expect_error(ErrorCode::kNotFound, {"a.safetensors", "no tensor 'y'"}, [&] { file.read("y"); });
}

TEST(SafetensorsFile, OpeningTouchesNoData) {
  const auto folder = test::scratch_dir("safetensors-file");
  // 64 GiB of holes: whoever read or copied them would not come back soon.
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 30;
  const std::string header = fmt::format(
      R"({{"a":{{"dtype":"F16","shape":[{0}],"data_offsets":[0,{1}]}}}})", kBytes / 2, kBytes);
  const auto start = file_of(header, {});
  write_file_atomically(folder / "big.safetensors", text_of(start));
  std::filesystem::resize_file(folder / "big.safetensors", start.size() + kBytes);
  const SafetensorsFile file(folder / "big.safetensors");
  EXPECT_EQ(file.read("a").view.shape[0], static_cast<std::int64_t>(kBytes / 2));
  std::filesystem::remove(folder / "big.safetensors");
}

TEST(SafetensorsFile, MissingOrNotAFile) {
  expect_error(ErrorCode::kNotFound, {"/nonexistent/x.safetensors"},
               [] { SafetensorsFile("/nonexistent/x.safetensors"); });
  const auto folder = test::scratch_dir("safetensors-file");
  expect_error(ErrorCode::kInvalidFile, {"not a regular file"}, [&] { SafetensorsFile{folder}; });
  write_file_atomically(folder / "empty.safetensors", "");
  expect_error(ErrorCode::kInvalidFile, {"empty.safetensors", "too few"},
               [&] { SafetensorsFile(folder / "empty.safetensors"); });
}

TEST(SafetensorsFile, DtypesThatAreKnownButNotReadAreNamedOnlyWhenWanted) {
  TensorSet set{{"a", raw("F32", {1}, std::vector<float>{1})}};
  for (const char* dtype : {"F8_E4M3", "F8_E5M2", "BOOL", "F8_E8M0"}) {
    set["odd"] = raw(dtype, {3}, std::vector<std::uint8_t>(3));
    const SafetensorsFile file = open_set(set);
    EXPECT_EQ(file.names(), std::vector<std::string>{"a"});
    expect_error(ErrorCode::kUnsupported, {"'odd'", dtype, "BF16"}, [&] { file.find("odd"); });
    expect_error(ErrorCode::kUnsupported, {"'odd'", dtype}, [&] { file.read("odd"); });
  }
}

TEST(SafetensorsFile, TensorsAtOddPlacesAreAligned) {
  // Three bytes before the floats, as a careless writer would.
  const auto data =
      raw("U8", {11}, std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0});
  const auto file = open_bytes(file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})",
                                       data.bytes));
  const HostArray array = file.read("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.view.data) % 4, 0u);
  EXPECT_EQ(array.view.as<float>()[0], 1.5f);
  EXPECT_EQ(array.view.as<float>()[1], -2.0f);
}

TEST(SafetensorsFile, FoldsDimensionsBeyondTheFourth) {
  const SafetensorsFile file =
      open_set({{"conv", raw("U8", {2, 3, 1, 2, 5}, std::vector<std::uint8_t>(60))},
                {"flat", raw("U8", {1, 1, 0, 9, 9, 9}, std::vector<std::uint8_t>{})}});
  EXPECT_EQ(file.find("conv")->shape.to_string(), "[2, 3, 1, 10]");
  EXPECT_EQ(file.find("flat")->shape.elements(), 0);
  EXPECT_EQ(file.entries()[0].shape.size(), 5u);
}

}  // namespace
}  // namespace bl
