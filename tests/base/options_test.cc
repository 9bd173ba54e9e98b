#include "base/options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace bl {
namespace {

struct Sample {
  bool loud = false;
  std::int64_t count = 3;
  std::optional<double> share;
  ByteSize room;
  std::vector<std::string> names;

  template <class V>
  void visit(V&& v) {
    v.group("Sample");
    v(loud, {"--loud", "", "say more"});
    v(count, {"-n,--token-count", "N", "how many"});
    v(share, {"--share", "X", "which part"});
    v(room, {"--room", "SIZE", "memory"});
    v(names, {"--name", "TEXT", "who"});
  }
};

TEST(Options, KeysAreLongFlags) {
  Sample sample;
  EXPECT_EQ(option_keys(sample),
            (std::vector<std::string>{"loud", "token_count", "share", "room", "name"}));
}

TEST(Options, TextBecomesValues) {
  Sample sample;
  EXPECT_TRUE(set_option(sample, "token_count", "-17"));
  EXPECT_TRUE(set_option(sample, "share", "0.25"));
  EXPECT_TRUE(set_option(sample, "room", "1.5GiB"));
  EXPECT_TRUE(set_option(sample, "loud", "on"));
  EXPECT_TRUE(set_option(sample, "name", "a"));
  EXPECT_TRUE(set_option(sample, "name", "b c"));
  EXPECT_FALSE(set_option(sample, "missing", "1"));
  EXPECT_EQ(sample.count, -17);
  EXPECT_EQ(sample.share, 0.25);
  EXPECT_EQ(sample.room.bytes, 1610612736u);
  EXPECT_TRUE(sample.loud);
  EXPECT_EQ(sample.names, (std::vector<std::string>{"a", "b c"}));
}

TEST(Options, WrongTextIsRefused) {
  Sample sample;
  for (const char* text : {"", "x", "1.5", "3 ", "99999999999999999999"}) {
    EXPECT_THROW(set_option(sample, "token_count", text), Error) << text;
  }
  for (const char* text : {"", "half", "nan", "inf", "1e999", "0.5x"}) {
    EXPECT_THROW(set_option(sample, "share", text), Error) << text;
  }
  for (const char* text : {"", "-1", "3 parsecs", "nan", "1e30TiB"}) {
    EXPECT_THROW(set_option(sample, "room", text), Error) << text;
  }
  EXPECT_THROW(set_option(sample, "loud", "maybe"), Error);
}

}  // namespace
}  // namespace bl
