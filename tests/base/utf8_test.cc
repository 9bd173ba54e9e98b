#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace bl {
namespace {

// Table 3-7 of the Unicode standard, at both sides of its borders.
TEST(Utf8, JudgesWellFormedness) {
  for (const char* good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
                           "longer than eight bytes, then \xe2\x82\xac and more"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << testing::PrintToString(std::string(good));
  }
  for (const char* bad : {"\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe2\x82",
                          "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xf0\x9f\x98", "eight bytes of text\xff"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << testing::PrintToString(std::string(bad));
  }
}

TEST(Utf8, CountsCharacters) {
  EXPECT_EQ(count_code_points(""), 0u);
  EXPECT_EQ(count_code_points("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), 4u);
}

// A stream keeps what may become a character, and its end gives it up.
TEST(Utf8, DecodesWhatComesInParts) {
  std::string out;
  EXPECT_EQ(decode_lossy("a\xe2\x82", false, out), 1u);
  EXPECT_EQ(out, "a");
  out.clear();
  EXPECT_EQ(decode_lossy("a\xe2\x82", true, out), 3u);
  EXPECT_EQ(out, "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace bl
