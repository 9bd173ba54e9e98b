// docs/robustness.md, "The server": rights, browsers, paths, limits of what is read.
#include <gtest/gtest.h>

#include <thread>

#include "http_fixture.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class HttpRights : public ServerFixture {
 protected:
  // A path that the route's pattern has.
  static std::string path_of(std::string pattern) {
    for (std::size_t at = pattern.find('{'); at != pattern.npos; at = pattern.find('{')) {
      pattern.replace(at, pattern.find('}', at) - at + 1, "x");
    }
    return pattern;
  }
  static std::string text_of(const server::Route& route, const std::string& path,
                             const std::string& fields = "") {
    return route.method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
           "Content-Length: 2\r\n\r\n{}";
  }
  // Whether a body says what is wrong in the form of its API.
  static bool has_shape(const Json& body, server::ErrorShape shape) {
    using enum server::ErrorShape;
    switch (shape) {
      case kOpenAi:
        return body.at("error").at("message").is_string() && body.at("error").contains("code") &&
               body.at("error").at("type").is_string();
      case kLlama:
        return body.at("error").at("code").is_number() &&
               body.at("error").at("message").is_string();
      case kAnthropic:
        return body.at("type") == "error" && body.at("error").at("message").is_string();
      case kOllama:
        return body.at("error").is_string();
      case kKobold:
        return body.at("detail").at("msg").is_string();
    }
    return false;
  }
};

TEST_F(HttpRights, NoRouteIsOpenByMistake) {
  open({.access = {.keys = {"first-key"}, .admin_keys = {"admin-key"}}});
  std::size_t closed = 0;
  for (const server::Route& route : server_->router().routes()) {
    if (route.access == server::Access::kOpen) continue;
    ++closed;
    std::vector<std::string> paths{path_of(route.pattern)};
    if (route.pattern.starts_with("/v1/")) paths.push_back(paths[0].substr(3));
    for (const std::string& path : paths) {
      for (const char* fields : {"", "Authorization: Bearer wrong-key\r\n", "x-api-key: \r\n",
                                 "Authorization: Bearer\r\n", "Cookie: key=first-key\r\n"}) {
        const SocketAnswer answer = ask(text_of(route, path, fields));
        EXPECT_EQ(answer.status, 401) << route.method << " " << path << " " << fields;
        EXPECT_TRUE(has_shape(answer.json(), route.shape)) << answer.body;
        EXPECT_EQ(answer.field("WWW-Authenticate"), "Bearer");
      }
      EXPECT_EQ(ask(text_of(route, path + "?api_key=first-key&key=first-key")).status, 401);
    }
    if (route.access == server::Access::kAdmin) {
      const auto& ordinary = "Authorization: Bearer first-key\r\n";
      EXPECT_EQ(ask(text_of(route, paths[0], ordinary)).status, 403) << paths[0];
    }
  }
  EXPECT_GT(closed, 20u);
}

TEST_F(HttpRights, OtherSpellingsOfAPathOpenNothing) {
  open({.access = {.keys = {"first-key"}}});
  for (const char* path : {"//v1/models", "/v1//models", "/v1/models/", "/v1/./models",
                           "/health/../v1/models", "/V1/models", "/v1%2Fmodels", "/v1/model%73",
                           "http://localhost/v1/models", "http://health/v1/models", "/v1/models;a",
                           "/v1/models%20", "/v1/models#/health", "/health%2f..%2fv1/models"}) {
    const SocketAnswer answer = get(path);
    EXPECT_TRUE(answer.status >= 400 && answer.status < 500) << path << " " << answer.status;
  }
}

TEST_F(HttpRights, NamesOfModelsAreNoPaths) {
  open();
  for (const char* name :
       {"../../etc/passwd", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "..", "%2e%2e", "a/../Tiny",
        "C:%5cwindows", "Tiny%0a", "file:///etc/passwd"}) {
    const SocketAnswer answer = get(std::string("/v1/models/") + name);
    EXPECT_EQ(answer.status, 404) << name;
    EXPECT_FALSE(answer.says("root:")) << name;
    const SocketAnswer posted =
        post("/v1/completions", Json{{"model", name}, {"prompt", "a"}}.dump());
    EXPECT_EQ(posted.status, 404) << name;
    EXPECT_EQ(posted.json()["error"]["code"], "model_not_found");
  }
}

TEST_F(HttpRights, PagesOfOtherSitesReachNothing) {
  open();
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const SocketAnswer plain = post("/v1/completions", body);
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.field("Access-Control-Allow-Origin"), "") << "closed by default";
  for (const char* fields :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"}) {
    const SocketAnswer refused = post("/v1/completions", body, fields);
    EXPECT_EQ(refused.status, 403) << fields;
    EXPECT_EQ(refused.field("Access-Control-Allow-Origin"), "");
  }
  // The name of another site that resolves to this machine.
  const std::string rebound = "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n";
  EXPECT_EQ(ask(rebound).status, 403);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 200);
  EXPECT_EQ(stats().running, 0);
}

TEST_F(HttpRights, AllowedPagesGetTheirFields) {
  open({.access = {.cors_origins = {"https://ui.example"}}});
  const std::string origin = "Origin: https://ui.example\r\n";
  const SocketAnswer answer = post("/v1/completions", R"({"prompt":"a","max_tokens":1})", origin);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.field("Access-Control-Allow-Origin"), "https://ui.example");
  const SocketAnswer stream =
      post("/v1/completions", R"({"prompt":"a","max_tokens":1,"stream":true})", origin);
  EXPECT_EQ(stream.field("Access-Control-Allow-Origin"), "https://ui.example");
  const SocketAnswer wrong = post("/v1/completions", "{", origin);
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.field("Access-Control-Allow-Origin"), "https://ui.example");
  const SocketAnswer preflight =
      ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + origin +
          "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: X-A\r\n\r\n");
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.field("Access-Control-Allow-Headers"), "X-A");
  EXPECT_EQ(preflight.field("Allow"), "POST, OPTIONS");
}

TEST_F(HttpRights, MethodsAreThoseOfTheRoute) {
  open();
  EXPECT_EQ(ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").field("Allow"),
            "GET, HEAD, OPTIONS");
  RawClient client(port());
  client.send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string head = client.read_to("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(client.read_to("\r\n\r\n").starts_with("HTTP/1.1 200"));
  client.send("DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const SocketAnswer refused = SocketAnswer(client.read_answer());
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.field("Allow"), "GET, HEAD, OPTIONS");
}

TEST_F(HttpRights, CompressedBodiesAreRefused) {
  open();
  const std::string bomb("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  const SocketAnswer answer = post("/v1/completions", bomb, "Content-Encoding: gzip\r\n");
  EXPECT_EQ(answer.status, 415);
  EXPECT_EQ(answer.json()["error"]["code"], "unsupported_content_encoding");
  EXPECT_EQ(post("/api/v1/generate", bomb, "Content-Encoding: br\r\n").json()["detail"]["type"],
            "bad_input");
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","max_tokens":1})",
                 "Content-Encoding: identity\r\nContent-Type: application/octet-stream\r\n")
                .status,
            200);
}

TEST_F(HttpRights, SizesAreBoundedInTheShapeOfTheRoute) {
  open({.http = {.limits = {.header_bytes = 8192, .body_bytes = 1000}}});
  EXPECT_EQ(get("/v1/models", "A: " + std::string(9000, 'a') + "\r\n").status, 431);
  RawClient client(port());
  client.send("POST /api/v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n");
  const SocketAnswer large = SocketAnswer(client.read_answer());
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(large.json()["detail"]["type"], "bad_input") << "before any of the body was sent";
  const SocketAnswer chunked =
      ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
          std::string("3e9\r\n") + std::string(1001, 'a') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.status, 413);
  EXPECT_EQ(chunked.json()["error"]["type"], "invalid_request_error");
}

TEST_F(HttpRights, BodiesThatAreNoRequestsGive400) {
  open();
  const std::string deep(100'000, '[');
  const std::string many = [] {
    std::string list = "\"a\"";
    for (int i = 0; i < 100'000; ++i) list += ",\"a\"";
    return "[" + list + "]";
  }();
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/completion", "/infill",
                           "/api/v1/generate", "/api/extra/generate/stream"}) {
    for (const std::string& body :
         {std::string("null"), std::string("\"text\""), std::string("[123]"), std::string("7"),
          std::string(""), std::string("{"), deep, "{\"prompt\":" + deep,
          "{\"prompt\":\"a\",\"stop\":" + many + "}",
          "{\"prompt\":\"a\",\"dry_sequence_breakers\":" + many + "}"}) {
      const SocketAnswer answer = post(path, body);
      EXPECT_EQ(answer.status, 400) << path << " " << body.substr(0, 60);
      EXPECT_TRUE(has_shape(answer.json(), server_->router().shape_of(path))) << answer.body;
    }
  }
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace bl::test
