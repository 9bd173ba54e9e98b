// Limits of keys: the buckets with a clock of the test's own, and what clients are told.
#include "server/key_limits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "http_fixture.h"

namespace bl::server {
namespace {

using namespace std::chrono_literals;

class KeyLimitsTest : public testing::Test {
 protected:
  // The place is given back at once.
  bool admitted(KeyLimits& limits, const std::string& key) {
    const KeyLimits::Decision decision = limits.admit(key, now_);
    fields_ = decision.fields;
    return decision.place != nullptr;
  }
  std::string field(const std::string& name) const {
    for (const http::Field& each : fields_) {
      if (each.name == name) return each.value;
    }
    return {};
  }
  KeyLimits::Clock::time_point now_ = KeyLimits::Clock::now();
  std::vector<http::Field> fields_;
};

TEST_F(KeyLimitsTest, RequestsFillUpEvenly) {
  KeyLimits limits({.requests_per_minute = 6});
  for (int i = 5; i >= 0; --i) {
    EXPECT_TRUE(admitted(limits, "a"));
    EXPECT_EQ(field("x-ratelimit-remaining-requests"), std::to_string(i));
  }
  EXPECT_FALSE(admitted(limits, "a"));
  EXPECT_EQ(field("Retry-After"), "10");
  EXPECT_EQ(field("x-ratelimit-limit-requests"), "6");
  EXPECT_TRUE(admitted(limits, "b")) << "another key has its own";
  now_ += 9s;
  EXPECT_FALSE(admitted(limits, "a"));
  now_ += 1s;
  EXPECT_TRUE(admitted(limits, "a"));
  EXPECT_FALSE(admitted(limits, "a"));
  now_ += 1h;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(admitted(limits, "a"));
  EXPECT_FALSE(admitted(limits, "a")) << "a bucket holds no more than a minute";
}

TEST_F(KeyLimitsTest, TokensAreCountedWhenTheyAreKnown) {
  KeyLimits limits({.tokens_per_minute = 60});
  EXPECT_TRUE(admitted(limits, "a"));
  limits.count_tokens("a", 100, now_);
  EXPECT_FALSE(admitted(limits, "a"));
  EXPECT_EQ(field("Retry-After"), "41");
  EXPECT_EQ(field("x-ratelimit-remaining-tokens"), "0");
  now_ += 41s;
  EXPECT_TRUE(admitted(limits, "a"));
}

TEST_F(KeyLimitsTest, PlacesAreGivenBack) {
  KeyLimits limits({.concurrent = 2});
  KeyLimits::Decision first = limits.admit("a");
  const KeyLimits::Decision second = limits.admit("a");
  EXPECT_FALSE(admitted(limits, "a"));
  first.place.reset();
  EXPECT_TRUE(admitted(limits, "a"));
}

TEST_F(KeyLimitsTest, NoLimitHasNoFields) {
  KeyLimits limits({});
  EXPECT_TRUE(admitted(limits, "a"));
  EXPECT_TRUE(fields_.empty());
}

}  // namespace
}  // namespace bl::server

namespace bl::test {
namespace {

class ServerLimits : public ServerFixture {
 protected:
  SocketAnswer complete(const char* key) {
    return post("/v1/completions", R"({"prompt":"a","max_tokens":2})",
                std::string("Authorization: Bearer ") + key + "\r\n");
  }
};

TEST_F(ServerLimits, ClientsAreToldWhenToTryAgain) {
  open({.access = {.keys = {"first-key", "second-key"}, .admin_keys = {"admin-key"}},
        .limits = {.requests_per_minute = 2}});
  const SocketAnswer first = complete("first-key");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.field("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.field("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(complete("first-key").status, 200);
  const SocketAnswer refused = complete("first-key");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.json()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(refused.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_GE(std::stoi(refused.field("Retry-After")), 1);
  EXPECT_EQ(complete("second-key").status, 200);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(complete("admin-key").status, 200);
  const std::string mine = "x-api-key: first-key\r\n";
  EXPECT_EQ(get("/v1/models", mine).status, 200) << "what computes nothing is free";
  EXPECT_EQ(post("/api/v1/generate", R"({"prompt":"a"})", mine).json()["detail"]["type"],
            "service_unavailable");
  EXPECT_EQ(post("/completion", R"({"prompt":"a"})", mine).json()["error"]["code"], 429);
}

TEST_F(ServerLimits, TokensOfAbandonedAnswersCount) {
  open({.access = {.keys = {"first-key"}}, .limits = {.tokens_per_minute = 60}});
  RawClient client(port());
  client.send(post_text("/v1/completions",
                        R"({"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true})",
                        "x-api-key: first-key\r\n"));
  ASSERT_TRUE(becomes_true([&] { return stats().decode_tokens > 200; }));
  client.close();
  EXPECT_TRUE(becomes_true([&] { return complete("first-key").status == 429; }));
}

TEST_F(ServerLimits, TokensOfEmbeddingsCount) {
  open({.access = {.keys = {"first-key"}}, .limits = {.tokens_per_minute = 30}});
  const std::string mine = "x-api-key: first-key\r\n";
  EXPECT_EQ(complete("first-key").status, 200);
  const std::string text(40, 'a');
  EXPECT_EQ(post("/v1/embeddings", fmt::format(R"({{"input":"{}"}})", text), mine).status, 200);
  EXPECT_EQ(complete("first-key").status, 429);
}

TEST_F(ServerLimits, AFullQueueIsNoFaultOfTheClient) {
  open({}, {.requests = 1});
  RawClient client(port());
  client.send(post_text("/v1/completions",
                        R"({"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true})"));
  ASSERT_NE(client.read_to("data: {"), "");
  const SocketAnswer refused = post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "overloaded");
}

TEST_F(ServerLimits, APlaceIsFreeWhenItsClientHasLeft) {
  open({.access = {.keys = {"first-key"}}, .limits = {.concurrent = 1}});
  RawClient client(port());
  client.send(post_text("/v1/completions",
                        R"({"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true})",
                        "x-api-key: first-key\r\n"));
  ASSERT_NE(client.read_to("data: {"), "");
  const SocketAnswer refused = complete("first-key");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.field("Retry-After"), "1");
  client.close();
  EXPECT_TRUE(becomes_true([&] { return complete("first-key").status == 200; }));
}

}  // namespace
}  // namespace bl::test
