#include "http/message.h"

#include <gtest/gtest.h>

namespace bl::http {
namespace {

TEST(PercentDecoded, RefusesWhatIsMalformed) {
  EXPECT_EQ(percent_decoded("a%20b%2Fc"), "a b/c");
  EXPECT_EQ(percent_decoded("%e4%BD%a0"), "你");
  EXPECT_EQ(percent_decoded("100%"), std::nullopt);
  EXPECT_EQ(percent_decoded("%2"), std::nullopt);
  EXPECT_EQ(percent_decoded("%zz"), std::nullopt);
  EXPECT_EQ(percent_decoded("a%00b"), std::nullopt);
}

TEST(Target, IsSplitAndDecoded) {
  Request request;
  ASSERT_TRUE(read_target("/v1/models/a%2Fb?beta=true&x=%20y+z", request));
  EXPECT_EQ(request.path, "/v1/models/a/b");
  EXPECT_EQ(request.parameter("beta"), "true");
  EXPECT_EQ(request.parameter("x"), " y z");
  EXPECT_EQ(request.parameter("y"), std::nullopt);
  ASSERT_TRUE(read_target("http://host:80/health", request));
  EXPECT_EQ(request.path, "/health");
  ASSERT_TRUE(read_target("http://host", request));
  EXPECT_EQ(request.path, "/");
  EXPECT_TRUE(read_target("*", request));
  EXPECT_FALSE(read_target("", request));
  EXPECT_FALSE(read_target("health", request));
  EXPECT_FALSE(read_target("/%", request));
}

TEST(Fields, AreFoundByTheirNameInLowerCase) {
  const Request request{.fields = {{"a", "1"}, {"b", "2"}, {"a", "3"}}};
  ASSERT_NE(request.field("a"), nullptr);
  EXPECT_EQ(*request.field("a"), "1");
  EXPECT_EQ(request.field("c"), nullptr);
}

}  // namespace
}  // namespace bl::http
