#include "format/gguf_file.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/gguf_bytes.h"

namespace bl::test {
namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

std::shared_ptr<const GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(as_span(bytes), "test.gguf");
}

// The message of the Error that parsing gives; empty where it gives none.
std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_error(const std::string& bytes, const std::string& part) {
  const std::string message = error_of(bytes);
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::string header(std::uint64_t tensors, std::uint64_t keys) {
  return "GGUF" + GgufBytes::raw<std::uint32_t>(3) + GgufBytes::raw(tensors) + GgufBytes::raw(keys);
}

TEST(GgufFile, ReadsValuesOfEveryType) {
  GgufBytes file;
  file.add("u32", 7u).add("f32", 0.5f).add("yes", true).add("text", "ü");
  file.key_value("u8", 0, GgufBytes::raw<std::uint8_t>(200));
  file.key_value("i8", 1, GgufBytes::raw<std::int8_t>(-3));
  file.key_value("u16", 2, GgufBytes::raw<std::uint16_t>(60000));
  file.key_value("i16", 3, GgufBytes::raw<std::int16_t>(-30000));
  file.key_value("i32", 5, GgufBytes::raw<std::int32_t>(-5));
  file.key_value("u64", 10, GgufBytes::raw<std::uint64_t>(1));
  file.key_value("i64", 11, GgufBytes::raw<std::int64_t>(-1));
  file.key_value("f64", 12, GgufBytes::raw(0.25));
  file.add_texts("words", {"a", "", "c"});
  file.add_list<std::int32_t>("ints", 5, {1, -2, 3});
  file.add_list<float>("floats", 6, {1.5f, -2});
  file.add_list<std::uint8_t>("flags", 7, {1, 0});
  const std::string bytes = file.bytes();
  const auto gguf = parse(bytes);
  EXPECT_EQ(gguf->integer("u32"), 7);
  EXPECT_EQ(gguf->number("f32"), 0.5);
  EXPECT_EQ(gguf->boolean("yes"), true);
  EXPECT_EQ(gguf->text("text"), "ü");
  EXPECT_EQ(gguf->integer("u8"), 200);
  EXPECT_EQ(gguf->integer("i8"), -3);
  EXPECT_EQ(gguf->integer("u16"), 60000);
  EXPECT_EQ(gguf->integer("i16"), -30000);
  EXPECT_EQ(gguf->integer("i32"), -5);
  EXPECT_EQ(gguf->integer("u64"), 1);
  EXPECT_EQ(gguf->integer("i64"), -1);
  EXPECT_EQ(gguf->number("f64"), 0.25);
  EXPECT_EQ(gguf->texts("words")->size(), 3u);
  EXPECT_EQ((*gguf->texts("words"))[2], "c");
  EXPECT_EQ(*gguf->integers("ints"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(*gguf->numbers("floats"), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(*gguf->booleans("flags"), (std::vector<bool>{true, false}));
  EXPECT_EQ(gguf->integer("absent"), std::nullopt);
  EXPECT_EQ(gguf->keys().size(), 16u);
}

TEST(GgufFile, ReadsTensorsOutermostDimensionFirst) {
  GgufBytes file;
  file.ramp("a", {4, 3}, 1).ramp("b", {5}, 2);
  const std::string bytes = file.bytes(2);
  const auto gguf = parse(bytes);
  EXPECT_EQ(gguf->version(), 2u);
  ASSERT_EQ(gguf->tensors().size(), 2u);
  const GgufTensor* a = gguf->find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Shape{3, 4}));
  EXPECT_EQ(a->bytes.size(), 48u);
  float last = 0;
  std::memcpy(&last, gguf->find_tensor("b")->bytes.data() + 16, 4);
  EXPECT_EQ(last, 8);
  EXPECT_EQ(gguf->find_tensor("c"), nullptr);
}

TEST(GgufFile, HonoursAlignment) {
  GgufBytes file;
  file.add("general.alignment", 64u);
  std::string bytes = file.tensor("t", {2}, 0, GgufBytes::raw(3.0f) + GgufBytes::raw(4.0f)).bytes();
  // The builder aligns to 32: move the data to the next multiple of 64.
  const std::string data = bytes.substr(bytes.size() - 32);
  bytes.resize(bytes.size() - 32);
  bytes.resize((bytes.size() + 63) / 64 * 64);
  bytes += data;
  float first = 0;
  const auto gguf = parse(bytes);
  std::memcpy(&first, gguf->find_tensor("t")->bytes.data(), 4);
  EXPECT_EQ(first, 3);
}

TEST(GgufFile, RefusesOtherFilesAndVersions) {
  expect_error("", "ends within");
  expect_error("GGU", "ends within");
  expect_error("PK\3\4 something else", "not a GGUF file");
  expect_error("GGUF" + GgufBytes::raw<std::uint32_t>(1) + std::string(64, '\0'), "version 1");
  expect_error("GGUF" + GgufBytes::raw<std::uint32_t>(4) + std::string(64, '\0'), "version 4");
  expect_error("GGUF" + GgufBytes::raw<std::uint32_t>(3u << 24) + std::string(64, '\0'),
               "big-endian");
}

TEST(GgufFile, RefusesCountsThatTheFileCannotHold) {
  expect_error(header(kHuge, 0) + std::string(100, '\0'), "tensors, too many");
  expect_error(header(0, kHuge) + std::string(100, '\0'), "metadata keys, too many");
  expect_error(header(1u << 20, 0) + std::string(1000, '\0'), "too many");
  const auto list = [](std::uint32_t element, std::uint64_t count) {
    return header(0, 1) +
           GgufBytes::entry("k", 9, GgufBytes::raw(element) + GgufBytes::raw(count) + "xxxxxxxx");
  };
  expect_error(list(4, kHuge), "elements of type u32");
  expect_error(list(12, kHuge / 8 + 2), "elements of type f64");  // the product wraps to 8
  expect_error(list(8, kHuge / 4), "elements of type string");
  expect_error(list(0, 9), "only 8 bytes");
  expect_error(list(9, 1), "array of arrays");
  expect_error(list(13, 1), "value type 13");
}

TEST(GgufFile, RefusesBrokenText) {
  expect_error(header(0, 1) + GgufBytes::raw(kHuge) + std::string(40, 'k'), "ends within");
  expect_error(header(0, 1) + GgufBytes::entry("k", 8, GgufBytes::raw<std::uint64_t>(50) + "short"),
               "ends within");
  expect_error(header(0, 1) + GgufBytes::entry("", 4, GgufBytes::raw(1u)) + "x", "key of 0 bytes");
  // 37 bytes: an empty key is all there is.
  expect_error((header(0, 1) + GgufBytes::raw<std::uint64_t>(0) + std::string(20, '\0')),
               "0 bytes");
  expect_error(header(0, 1) + GgufBytes::entry("k", 99, "12345678"), "value type 99");
}

TEST(GgufFile, RefusesWhatOccursTwice) {
  expect_error(GgufBytes().add("a", 1u).add("a", 2u).bytes(), "a occurs twice");
  expect_error(GgufBytes().ramp("t", {4}, 1).ramp("t", {4}, 1).bytes(), "t occurs twice");
}

TEST(GgufFile, RefusesWrongAlignment) {
  const auto with = [](GgufBytes& file) { return file.ramp("t", {4}, 1).bytes(); };
  expect_error(with(GgufBytes().add("general.alignment", "32")), "a u32 is expected");
  expect_error(
      with(GgufBytes().key_value("general.alignment", 10, GgufBytes::raw<std::uint64_t>(32))),
      "a u32 is expected");
  expect_error(with(GgufBytes().add_list<std::uint32_t>("general.alignment", 4, {32})),
               "a u32 is expected");
  expect_error(with(GgufBytes().add("general.alignment", 0u)), "power of two");
  expect_error(with(GgufBytes().add("general.alignment", 24u)), "power of two");
  expect_error(with(GgufBytes().add("general.alignment", 1u << 31)), "is the file complete?");
}

TEST(GgufFile, RefusesWrongDimensions) {
  const std::string data(64, '\0');
  const auto tensor = [&](const std::vector<std::uint64_t>& sizes, std::uint32_t type) {
    return GgufBytes().tensor("t", sizes, type, data).bytes();
  };
  expect_error(tensor({}, 0), "0 dimensions");
  expect_error(tensor({1, 1, 1, 1, 1}, 0), "5 dimensions");
  expect_error(tensor({4, 0}, 0), "dimension 1 is zero");
  expect_error(tensor({(std::uint64_t{1} << 42) + 1, std::uint64_t{1} << 22}, 0), "too large");
  expect_error(tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0), "too large");
  expect_error(tensor({(std::uint64_t{1} << 42) + 1}, 0), "takes");
  expect_error(tensor({kHuge}, 0), "too large");
  expect_error(tensor({33}, 2), "no multiple of the 32");
  expect_error(tensor({128}, 12), "no multiple of the 256");
  expect_error(tensor({17}, 0), "takes 68 bytes");
  expect_error(tensor({4}, 5), "unknown element type 5");
  expect_error(tensor({4}, 4000000000u), "unknown element type 4000000000");
  std::string many = header(1, 0) + GgufBytes::text("t") + GgufBytes::raw(0xffffffffu);
  expect_error(many + std::string(100, '\1'), "4294967295 dimensions");
}

TEST(GgufFile, RefusesWrongPlaces) {
  const std::string data(64, '\0');
  const auto at = [&](std::uint64_t offset) {
    return GgufBytes().tensor_at("t", {4}, 0, offset, data).bytes();
  };
  EXPECT_EQ(error_of(at(32)), "");
  expect_error(at(16), "no multiple of 32");
  expect_error(at(64), "at offset 64");
  expect_error(at(kHuge - 31), "at offset");
  expect_error(GgufBytes().tensor("a", {16}, 0, data).tensor_at("b", {8}, 0, 32, data).bytes(),
               "a and b overlap");
}

// Every prefix of a good file gives an error, not a crash and not a file.
TEST(GgufFile, RefusesEveryTruncation) {
  GgufBytes file;
  file.add("general.architecture", "x").add("n", 3u).add_texts("words", {"one", "two"});
  file.ramp("a", {8}, 1).ramp("b", {8}, 1);
  const std::string bytes = file.bytes();
  ASSERT_EQ(error_of(bytes), "");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_of(bytes.substr(0, size)), "") << size;
  }
}

TEST(GgufFile, NamesKeysOfTheWrongType) {
  GgufBytes file;
  file.add("text", "x").add("n", 1u).add_texts("words", {"a"});
  file.add_list<std::uint8_t>("bytes", 0, {1, 2});
  file.key_value("big", 10, GgufBytes::raw(kHuge));
  file.add("nan", std::numeric_limits<float>::quiet_NaN()).add("bad", "\xff");
  const std::string bytes = file.bytes();
  const auto gguf = parse(bytes);
  const auto message = [&](auto&& read) -> std::string {
    try {
      read();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { gguf->integer("text"); }),
            "test.gguf: metadata key text is of type string, but an integer is expected");
  EXPECT_EQ(message([&] { gguf->text("n"); }),
            "test.gguf: metadata key n is of type u32, but a string is expected");
  // Scores and token types as bytes were read out of bounds elsewhere.
  EXPECT_EQ(message([&] { gguf->numbers("bytes"); }),
            "test.gguf: metadata key bytes is an array of u8, but an array of floats is expected");
  EXPECT_EQ(message([&] { gguf->integers("words"); }),
            "test.gguf: metadata key words is an array of string, but an array of integers is "
            "expected");
  EXPECT_NE(message([&] { gguf->texts("n"); }), "");
  EXPECT_NE(message([&] { gguf->booleans("words"); }), "");
  EXPECT_NE(message([&] { gguf->integer("big"); }).find("out of range"), std::string::npos);
  EXPECT_NE(message([&] { gguf->number("nan"); }).find("finite"), std::string::npos);
  EXPECT_NE(message([&] { gguf->text("bad"); }).find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace bl::test
