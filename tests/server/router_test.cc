#include "server/router.h"

#include <gtest/gtest.h>

namespace bl::server {
namespace {

class Routes : public testing::Test {
 protected:
  Routes() {
    add("GET", "/health");
    add("GET", "/v1/models");
    add("GET", "/v1/models/{model*}");
    add("POST", "/v1/requests/{id}/sampling");
    add("POST", "/api/chat", ErrorShape::kOllama);
  }
  void add(const char* method, const char* pattern, ErrorShape shape = ErrorShape::kOpenAi) {
    Route route;
    route.method = method;
    route.pattern = pattern;
    route.shape = shape;
    router_.add(std::move(route));
  }
  std::string pattern(const char* method, const char* path) {
    const Router::Found found = router_.find(method, path);
    return found.route == nullptr ? "none " + found.allowed : found.route->pattern;
  }
  Router router_;
};

TEST_F(Routes, AreFoundByMethodAndPath) {
  EXPECT_EQ(pattern("GET", "/health"), "/health");
  EXPECT_EQ(pattern("HEAD", "/health"), "/health");
  EXPECT_EQ(pattern("GET", "/v1/models"), "/v1/models");
  EXPECT_EQ(pattern("GET", "/models"), "/v1/models");
  EXPECT_EQ(pattern("GET", "/v1/health"), "none ");
  EXPECT_EQ(pattern("POST", "/health"), "none GET, HEAD, OPTIONS");
  EXPECT_EQ(pattern("GET", "/health/"), "none ");
  EXPECT_EQ(pattern("GET", "/healthy"), "none ");
  EXPECT_EQ(pattern("GET", "/"), "none ");
  EXPECT_EQ(pattern("GET", "*"), "none ");
}

TEST_F(Routes, HaveValuesInTheirPaths) {
  const Router::Found model = router_.find("GET", "/v1/models/org/name:latest");
  ASSERT_NE(model.route, nullptr);
  EXPECT_EQ(model.path_values.at(0).second, "org/name:latest");
  const Router::Found request = router_.find("POST", "/requests/abc/sampling");
  ASSERT_NE(request.route, nullptr);
  EXPECT_EQ(request.path_values.at(0).second, "abc");
  EXPECT_EQ(pattern("POST", "/v1/requests//sampling"), "none ");
  EXPECT_EQ(pattern("GET", "/v1/models/"), "none ");
}

TEST_F(Routes, HaveTheErrorShapeOfTheirPath) {
  EXPECT_EQ(router_.shape_of("/api/chat"), ErrorShape::kOllama);
  EXPECT_EQ(router_.shape_of("/api/none"), ErrorShape::kOllama);
  EXPECT_EQ(router_.shape_of("/v1/none"), ErrorShape::kOpenAi);
}

}  // namespace
}  // namespace bl::server
