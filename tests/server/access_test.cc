#include "server/access.h"

#include <gtest/gtest.h>

namespace bl::server {
namespace {

http::Request asks(std::string method, std::string path, std::vector<http::Field> fields) {
  http::Request request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.fields = std::move(fields);
  return request;
}

int status_of_check(const AccessPolicy& policy, const http::Request& head, Access access) {
  try {
    policy.check_browser(head);
    policy.check(head, access);
  } catch (const HttpError& error) {
    return error.status();
  }
  return 200;
}

TEST(Access, KeysComeInEachFormThatClientsUse) {
  const AccessPolicy policy({.keys = {"secret"}, .admin_keys = {"admin"}});
  const auto ask = [&](http::Field field, Access access = Access::kKey) {
    return status_of_check(policy, asks("GET", "/v1/models", {std::move(field)}), access);
  };
  EXPECT_EQ(ask({"authorization", "Bearer secret"}), 200);
  EXPECT_EQ(ask({"authorization", "bEARER   secret "}), 200);
  EXPECT_EQ(ask({"x-api-key", "secret"}), 200);
  EXPECT_EQ(ask({"api-key", "secret"}), 200);
  EXPECT_EQ(ask({"authorization", "Bearer admin"}), 200);
  EXPECT_EQ(ask({"authorization", "secret"}), 401);
  EXPECT_EQ(ask({"authorization", "Basic secret"}), 401);
  EXPECT_EQ(ask({"authorization", "Bearer Secret"}), 401);
  EXPECT_EQ(ask({"authorization", "Bearer secre"}), 401);
  EXPECT_EQ(ask({"authorization", "Bearer secretsecret"}), 401);
  EXPECT_EQ(ask({"authorization", "Bearer "}), 401);
  EXPECT_EQ(ask({"other", "secret"}), 401);
  EXPECT_EQ(ask({"authorization", "Bearer secret"}, Access::kAdmin), 403);
  EXPECT_EQ(ask({"authorization", "Bearer admin"}, Access::kAdmin), 200);
  EXPECT_EQ(ask({"other", ""}, Access::kAdmin), 401);
  EXPECT_EQ(ask({"other", ""}, Access::kOpen), 200);
}

TEST(Access, WithoutKeysEverybodyAsksAndNobodyAdministers) {
  const AccessPolicy policy({});
  EXPECT_EQ(status_of_check(policy, asks("GET", "/v1/models", {}), Access::kKey), 200);
  EXPECT_EQ(status_of_check(policy, asks("POST", "/v1/model/load", {}), Access::kAdmin), 403);
}

TEST(Access, HostsOfOtherNamesAreRefusedOnLoopback) {
  const AccessPolicy open({.allowed_hosts = {"box.lan"}});
  const auto ask = [](const AccessPolicy& policy, const char* host,
                      const char* path = "/v1/models") {
    return status_of_check(policy, asks("GET", path, {{"host", host}}), Access::kOpen);
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "a.localhost:1", "127.0.0.1:8080",
                           "[::1]:8080", "host.docker.internal:8080", "box.lan", "BOX.LAN:80"}) {
    EXPECT_EQ(ask(open, host), 200) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "evil.example:8080", "box.lan.evil.example", ""}) {
    EXPECT_EQ(ask(open, host), 403) << host;
    EXPECT_EQ(ask(open, host, "/health"), 200) << host;
  }
  const AccessPolicy keyed({.keys = {"k"}});
  EXPECT_EQ(ask(keyed, "evil.example"), 200) << "the key protects it";
  const AccessPolicy everywhere({.only_loopback = false});
  EXPECT_EQ(ask(everywhere, "evil.example"), 200);
}

TEST(Access, PagesOfOtherSitesChangeNothing) {
  const AccessPolicy policy({.allowed_hosts = {"box.lan"}, .cors_origins = {"https://ui.example"}});
  const auto ask = [&](std::vector<http::Field> fields, const char* method = "POST") {
    fields.push_back({"host", "localhost:8080"});
    return status_of_check(policy, asks(method, "/v1/completions", std::move(fields)),
                           Access::kOpen);
  };
  EXPECT_EQ(ask({}), 200);
  EXPECT_EQ(ask({{"origin", "http://localhost:8080"}}), 200);
  EXPECT_EQ(ask({{"origin", "http://localhost:9090"}}), 403);
  EXPECT_EQ(ask({{"origin", "https://evil.example"}}), 403);
  EXPECT_EQ(ask({{"origin", "null"}}), 403);
  EXPECT_EQ(ask({{"origin", "https://ui.example"}}), 200);
  EXPECT_EQ(ask({{"origin", "http://box.lan:3000"}}), 200);
  EXPECT_EQ(ask({{"sec-fetch-site", "cross-site"}}), 403);
  EXPECT_EQ(ask({{"sec-fetch-site", "same-origin"}}), 200);
  EXPECT_EQ(ask({{"origin", "https://evil.example"}}, "GET"), 200) << "nothing is changed";
}

TEST(Access, CorsFieldsGoToAllowedOriginsAlone) {
  const AccessPolicy policy({.cors_origins = {"https://ui.example"}});
  EXPECT_TRUE(policy.cors_fields(asks("GET", "/", {{"origin", "https://evil.example"}})).empty());
  EXPECT_TRUE(policy.cors_fields(asks("GET", "/", {})).empty());
  const auto fields = policy.cors_fields(asks("GET", "/", {{"origin", "https://ui.example"}}));
  ASSERT_FALSE(fields.empty());
  EXPECT_EQ(fields[0].value, "https://ui.example");
}

TEST(Access, PagesOfThisMachineAreAllowedByOneName) {
  const auto allows = [](const AccessPolicy& policy, const char* origin) {
    return !policy.cors_fields(asks("GET", "/", {{"origin", origin}})).empty();
  };
  const AccessPolicy policy({.cors_origins = {"localhost"}});
  for (const char* origin : {"http://localhost", "https://LOCALHOST:8080", "http://127.0.0.1:3000",
                             "http://[::1]", "http://[::1]:3000"}) {
    EXPECT_TRUE(allows(policy, origin)) << origin;
  }
  for (const char* origin : {"http://notlocalhost", "http://localhost.evil.example", "null",
                             "http://127.0.0.2", "http://evil.example/localhost"}) {
    EXPECT_FALSE(allows(policy, origin)) << origin;
  }
  EXPECT_FALSE(allows(AccessPolicy({}), "http://localhost"));
}

TEST(ConstantTime, ComparesWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("ab", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abd", "abc"));
  EXPECT_FALSE(equal_in_constant_time("", ""));
}

}  // namespace
}  // namespace bl::server
