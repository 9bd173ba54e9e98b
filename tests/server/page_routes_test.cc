// The web page: who gets it, with which fields, and that browsers need not fetch it again.
#include <gtest/gtest.h>

#include <string>

#include "http_fixture.h"
#include "server/page_files.h"

namespace bl::test {
namespace {

class PageRoutes : public ServerFixture {
 protected:
  // A browser's request.
  SocketAnswer browse(const std::string& path, const std::string& fields = "") {
    return get(path, "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n" + fields);
  }
  static std::string_view file(std::string_view name) {
    for (const EmbeddedFile& each : page_files()) {
      if (each.name == name) return each.bytes;
    }
    return {};
  }
};

TEST_F(PageRoutes, BrowsersGetThePageAndProgramsALine) {
  open_empty();
  const SocketAnswer page = browse("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.field("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.body, file("index.html"));
  EXPECT_TRUE(page.body.starts_with("<!doctype html>"));
  for (const char* fields : {"", "Accept: */*\r\n", "Accept: application/json\r\n",
                             "Accept: text/html;q=0, */*\r\n", "Accept: text/htmlx\r\n"}) {
    const SocketAnswer line = get("/", fields);
    EXPECT_EQ(line.status, 200);
    EXPECT_EQ(line.body, "Ollama is running") << fields;
    EXPECT_EQ(line.field("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_TRUE(line.field("Vary").starts_with("Accept")) << "a cache must not mix the two";
  }
}

TEST_F(PageRoutes, HeadHasTheFieldsAlone) {
  open_empty();
  for (const char* fields : {"", "Accept: text/html\r\n"}) {
    RawClient client(port());
    client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) + "\r\n");
    const SocketAnswer head(client.read_to("\r\n\r\n"));
    EXPECT_EQ(head.status, 200);
    EXPECT_NE(head.field("Content-Length"), "0");
    // The next answer follows at once, so no body was sent.
    client.send(get_text("/health"));
    EXPECT_TRUE(client.read_answer().starts_with("HTTP/1.1 ")) << fields;
  }
}

TEST_F(PageRoutes, EveryFileHasItsTypeAndItsPolicy) {
  open_empty();
  std::size_t modules = 0;
  for (const EmbeddedFile& each : page_files()) {
    const std::string path = "/ui/" + std::string(each.name);
    const SocketAnswer answer = get(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.body, each.bytes) << path;
    EXPECT_NE(answer.field("Content-Type"), "application/octet-stream") << path;
    EXPECT_EQ(answer.field("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(answer.field("Content-Security-Policy"),
              "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
              "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    modules += answer.field("Content-Type") == "text/javascript; charset=utf-8";
  }
  EXPECT_GT(modules, 10u);
  EXPECT_FALSE(file("marked.js").empty());
  EXPECT_FALSE(file("purify.js").empty());
  EXPECT_EQ(browse("/").field("Content-Security-Policy").substr(0, 18), "default-src 'none'");
}

TEST_F(PageRoutes, PartsAreFoundByTheirNameAlone) {
  open_empty();
  for (const char* path :
       {"/ui/none.js", "/ui/../web/app.js", "/ui/..%2fapp.js", "/ui/%2e%2e", "/ui/app.js/", "/ui/",
        "/ui", "/ui/app.js%00", "/ui/APP.JS", "/ui//app.js", "/ui/README.md"}) {
    const SocketAnswer answer = browse(path);
    EXPECT_TRUE(answer.status == 404 || answer.status == 400) << path << " " << answer.status;
  }
  EXPECT_TRUE(get("/ui/none.js").json()["error"]["message"].is_string());
  EXPECT_EQ(post("/ui/app.js", "{}").status, 405);
}

TEST_F(PageRoutes, NoKeyIsNeededForThePageButForTheRest) {
  open({.access = {.keys = {"first-key"}, .admin_keys = {"admin-key"}}});
  EXPECT_EQ(browse("/").status, 200);
  EXPECT_EQ(get("/ui/app.js").status, 200);
  EXPECT_EQ(get("/v1/models").status, 401);
}

TEST_F(PageRoutes, WhatIsKnownIsNotSentAgain) {
  open_empty();
  const std::string tag = get("/ui/app.js").field("ETag");
  ASSERT_TRUE(tag.starts_with("W/\"")) << tag;
  EXPECT_EQ(get("/ui/app.js").field("Cache-Control"), "no-cache");
  EXPECT_NE(get("/ui/base.css").field("ETag"), tag);
  for (const std::string& known : {tag, tag.substr(2), "\"other\", " + tag, std::string("*")}) {
    const SocketAnswer answer = get("/ui/app.js", "If-None-Match: " + known + "\r\n");
    EXPECT_EQ(answer.status, 304) << known;
    EXPECT_EQ(answer.body, "");
    EXPECT_EQ(answer.field("ETag"), tag);
  }
  EXPECT_EQ(get("/ui/app.js", "If-None-Match: \"other\"\r\n").status, 200);
  EXPECT_EQ(browse("/", "If-None-Match: " + browse("/").field("ETag") + "\r\n").status, 304);
}

TEST_F(PageRoutes, IsCompressedForWhoeverReadsThat) {
  open_empty();
  const SocketAnswer packed = get("/ui/app.js", "Accept-Encoding: deflate, gzip;q=0.5, br\r\n");
  EXPECT_EQ(packed.field("Content-Encoding"), "gzip");
  EXPECT_TRUE(packed.body.starts_with("\x1f\x8b"));
  EXPECT_LT(packed.body.size(), file("app.js").size());
  EXPECT_EQ(packed.field("Content-Length"), std::to_string(packed.body.size()));
  for (const char* fields : {"", "Accept-Encoding: br\r\n", "Accept-Encoding: gzip;q=0\r\n",
                             "Accept-Encoding: gzip; q=0.000, br\r\n"}) {
    const SocketAnswer plain = get("/ui/app.js", fields);
    EXPECT_EQ(plain.field("Content-Encoding"), "") << fields;
    EXPECT_EQ(plain.body, file("app.js"));
  }
}

}  // namespace
}  // namespace bl::test
