#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "support/data.h"
#include "tensor/float16.h"

namespace bl {
namespace {

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const auto path = test::scratch_dir("atomic") / "out.txt";
  {
    AtomicFile file(path);
    file.write("half");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));
  write_file_atomically(path, "whole");
  EXPECT_EQ(read_file(path), "whole");
  EXPECT_THROW(read_file(path, 3), Error);
}

// A rename over /dev/null would take it away from everybody.
TEST(AtomicFile, ReplacesOnlyFiles) {
  const std::filesystem::path pipe = test::scratch_dir("atomic-pipe") / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write_file_atomically(pipe, "x"), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THROW(write_file_atomically(pipe.parent_path(), "x"), Error);
}

TEST(Json, RefusesDeepNestingAndTrailingBytes) {
  EXPECT_THROW(parse_json(std::string(100000, '['), "deep"), Error);
  EXPECT_THROW(parse_json("{} x", "trailing"), Error);
  EXPECT_EQ(parse_json("{\"a\": [1, 2]}", "fine")["a"][1], 2);
}

TEST(Float16, RoundTripsEveryHalf) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = half_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_half(value), bits);
    const float next = half_to_float(static_cast<std::uint16_t>(bits + 1));
    if ((bits & 0x7fffu) >= 0x7bffu || std::isnan(next)) continue;
    // Half-way between neighbors goes to the even one.
    ASSERT_EQ(float_to_half((value + next) / 2), (bits & 1) != 0 ? bits + 1 : bits);
  }
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
}

}  // namespace
}  // namespace bl
