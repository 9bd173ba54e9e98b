// What a safetensors file may and may not say.

#include "format/safetensors_header.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using test::file_of;

std::vector<std::byte> zeros(std::size_t count) { return std::vector<std::byte>(count); }

SafetensorsHeader parse(const std::vector<std::byte>& file) {
  return parse_safetensors_header(file, "f");
}

void expect_rejected(const std::vector<std::string>& parts, const std::string& json,
                     std::size_t data_bytes) {
  SCOPED_TRACE(json.substr(0, 200));
  expect_error(ErrorCode::kInvalidFile, parts, [&] { parse(file_of(json, zeros(data_bytes))); });
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsHeader, ReadsWhatIsRight) {
  const auto header = parse(file_of(
      R"({"__metadata__":{"format":"pt"},"b":)" + tensor("F16", "[2,3]", "[4,16]") + R"(,"a":)" +
          tensor("F32", "[]", "[0,4]") + R"(,"e":)" + tensor("I64", "[0,5]", "[16,16]") + "}   ",
      zeros(16)));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_TRUE(header.entries[0].shape.empty());
  EXPECT_EQ(header.entries[1].dtype, DType::kF16);
  EXPECT_EQ(header.entries[1].bytes(), 12u);
  EXPECT_EQ(header.entries[2].bytes(), 0u);
  EXPECT_TRUE(parse(file_of("{}", {})).entries.empty());
  // Fields of newer writers are none of our business.
  EXPECT_EQ(
      parse(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"new":{}}})", zeros(1)))
          .entries.size(),
      1u);
}

TEST(SafetensorsHeader, RejectsLengthsThatCannotBe) {
  for (std::size_t size = 0; size < 8; ++size) {
    expect_error(ErrorCode::kInvalidFile, {"too few"}, [&] { parse(zeros(size)); });
  }
  auto file = file_of("{}", {});
  file[7] = std::byte{0xff};
  expect_error(ErrorCode::kInvalidFile, {"over the limit of 100000000"}, [&] { parse(file); });
  file = file_of("{}", {});
  file[0] = std::byte{3};
  expect_error(ErrorCode::kInvalidFile, {"beyond the end"}, [&] { parse(file); });
  file = file_of("{}", {});
  file[3] = std::byte{5};  // 83,886,082 bytes: under the limit, over the file
  expect_error(ErrorCode::kInvalidFile, {"beyond the end"}, [&] { parse(file); });
  expect_rejected({"must be a JSON object"}, "", 0);
  expect_rejected({"must be a JSON object"}, "[]", 0);
  expect_rejected({"must be a JSON object"}, " {}", 0);
}

TEST(SafetensorsHeader, KnowsWhatACloneWithoutItsFilesLooksLike) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const auto* bytes = reinterpret_cast<const std::byte*>(pointer.data());
  expect_error(ErrorCode::kInvalidFile, {"Git LFS pointer"}, [&] {
    parse({bytes, bytes + pointer.size()});
  });
}

TEST(SafetensorsHeader, RejectsBrokenJson) {
  expect_rejected({"not valid JSON"}, R"({"a":)", 0);
  expect_rejected({"not valid JSON"}, "{}x", 0);
  expect_rejected({"not valid JSON"}, "{\"\xff\":1}", 0);
  expect_rejected({"not valid JSON"}, "{\"a\":" + std::string(100000, '['), 0);
  expect_rejected({"'a'", "object"}, R"({"a":1})", 0);
  expect_rejected({"__metadata__", "object"}, R"({"__metadata__":1})", 0);
  expect_rejected({"__metadata__", "'k'", "string"}, R"({"__metadata__":{"k":1}})", 0);
  expect_rejected({"__metadata__", "twice"}, R"({"__metadata__":{},"__metadata__":{}})", 0);
  expect_rejected({"__metadata__", "'k'", "twice"}, R"({"__metadata__":{"k":"1","k":"2"}})", 0);
}

TEST(SafetensorsHeader, RejectsMissingAndRepeatedFields) {
  expect_rejected({"'a'", "no dtype"}, R"({"a":{"shape":[],"data_offsets":[0,0]}})", 0);
  expect_rejected({"'a'", "no shape"}, R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0);
  expect_rejected({"'a'", "no data_offsets"}, R"({"a":{"dtype":"U8","shape":[0]}})", 0);
  expect_rejected({"'a'", "dtype occurs twice"},
                  R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})", 0);
  expect_rejected({"'a'", "shape occurs twice"},
                  R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", 0);
  expect_rejected(
      {"tensor 'a' occurs twice"},
      R"({"a":)" + tensor("U8", "[1]", "[0,1]") + R"(,"a":)" + tensor("U8", "[1]", "[1,2]") + "}",
      2);
}

TEST(SafetensorsHeader, RejectsValuesOfWrongType) {
  const auto one = [](const std::string& text) { return R"({"a":)" + text + "}"; };
  expect_rejected({"'a'", "dtype must be a string"},
                  R"({"a":{"dtype":1,"shape":[0],"data_offsets":[0,0]}})", 0);
  expect_rejected({"'a'", "unknown dtype 'F17'"}, one(tensor("F17", "[1]", "[0,2]")), 2);
  expect_rejected({"'a'", "unknown dtype 'f16'"}, one(tensor("f16", "[1]", "[0,2]")), 2);
  expect_rejected({"'a'", "shape must be an array"}, one(tensor("U8", "1", "[0,1]")), 1);
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[18446744073709551615]",
                            "[9223372036854775808]", "[1e3]"}) {
    expect_rejected({"'a'", "shape", "whole numbers"}, one(tensor("U8", shape, "[0,1]")), 1);
  }
  for (const char* offsets : {"[0]", "[0,1,2]", "[]", "1", "{}"}) {
    expect_rejected({"'a'", "data_offsets", "two numbers"}, one(tensor("U8", "[1]", offsets)), 1);
  }
  expect_rejected({"'a'", "data_offsets", "whole numbers"}, one(tensor("U8", "[1]", "[-1,1]")), 1);
}

TEST(SafetensorsHeader, RejectsRangesOutsideTheFile) {
  const auto one = [](const std::string& offsets) {
    return R"({"a":)" + tensor("U8", "[1]", offsets) + "}";
  };
  expect_rejected({"'a'", "[1, 0]"}, one("[1,0]"), 1);
  expect_rejected({"'a'", "[0, 2]"}, one("[0,2]"), 1);
  expect_rejected({"'a'", "[9223372036854775806, 9223372036854775807]"},
                  one("[9223372036854775806,9223372036854775807]"), 1);
}

TEST(SafetensorsHeader, RejectsSizesThatDoNotFitOrOverflow) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":)" + tensor("F32", shape, offsets) + "}";
  };
  expect_rejected({"'a'", "span 4 bytes", "takes 8"}, one("[2]", "[0,4]"), 4);
  expect_rejected({"'a'", "span 3 bytes", "takes 4"}, one("[1]", "[0,3]"), 3);
  expect_rejected({"'a'", "overflows"}, one("[4611686018427387904]", "[0,0]"), 0);
  expect_rejected({"'a'", "overflows"}, one("[4294967296,4294967296]", "[0,0]"), 0);
  expect_rejected({"'a'", "takes"}, one("[4398046511105]", "[0,4]"), 4);  // 2^42 + 1
  expect_rejected({"'a'", "overflows"}, one("[4398046511105,4398046511105]", "[0,4]"), 4);
  expect_rejected({"'a'", "span 4 bytes", "takes 0"}, one("[0]", "[0,4]"), 4);
  // A zero makes the tensor empty, however large its other sizes are.
  EXPECT_EQ(parse(file_of(one("[9223372036854775807,0,9223372036854775807]", "[0,0]"), {}))
                .entries.size(),
            1u);
  // Codes of less than a byte.
  const auto nibbles = [](const std::string& shape) {
    return R"({"a":)" + tensor("F4", shape, "[0,3]") + "}";
  };
  EXPECT_FALSE(parse(file_of(nibbles("[6]"), zeros(3))).entries[0].dtype.has_value());
  expect_rejected({"'a'", "F4"}, nibbles("[5]"), 3);
}

TEST(SafetensorsHeader, RejectsGapsOverlapsAndRests) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + tensor("U8", "[2]", a) + R"(,"b":)" + tensor("U8", "[2]", b) + "}";
  };
  EXPECT_EQ(parse(file_of(two("[2,4]", "[0,2]"), zeros(4))).entries.size(), 2u);
  expect_rejected({"'b'", "overlapping"}, two("[0,2]", "[1,3]"), 3);
  expect_rejected({"'b'", "overlapping"}, two("[0,2]", "[0,2]"), 2);
  expect_rejected({"'b'", "gap"}, two("[0,2]", "[3,5]"), 5);
  expect_rejected({"'a'", "gap"}, two("[1,3]", "[3,5]"), 5);
  expect_rejected({"cover 4", "has 5"}, two("[0,2]", "[2,4]"), 5);
  expect_rejected({"cover 0", "has 1"}, "{}", 1);
}

TEST(SafetensorsHeader, EveryTruncationIsAnError) {
  const auto file = file_of(R"({"__metadata__":{"k":"v"},"a":)" + tensor("F16", "[2,2]", "[0,8]") +
                                R"(,"b":)" + tensor("I32", "[1]", "[8,12]") + "}",
                            zeros(12));
  EXPECT_EQ(parse(file).entries.size(), 2u);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> part(file.begin(),
                                      file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(parse(part), Error) << size;
  }
}

TEST(SafetensorsHeader, NamesInMessagesStayOnOneLine) {
  expect_error(ErrorCode::kInvalidFile, {"\\x0a", "\\x1b"},
               [] { parse(file_of(R"({"a\nb\u001b[31m":1})", {})); });
  expect_error(ErrorCode::kInvalidFile, {"…"},
               [] { parse(file_of("{\"" + std::string(100000, 'a') + "\":1}", {})); });
}

TEST(SafetensorsHeader, AHundredThousandTensorsAreNoTrouble) {
  std::string json = "{";
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    json += fmt::format("{}\"model.layers.{}.mlp.experts.{}.down_proj.weight\":{}", i ? "," : "",
                        i / 100, i % 100, tensor("U8", "[1]", fmt::format("[{},{}]", i, i + 1)));
  }
  json += "}";
  const auto file = file_of(json, zeros(kCount));
  const std::clock_t start = std::clock();
  EXPECT_EQ(parse(file).entries.size(), static_cast<std::size_t>(kCount));
  // Processor time, and generous: it takes a tenth of this under sanitizers.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20);
}

}  // namespace
}  // namespace bl
