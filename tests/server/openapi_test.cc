#include "server/openapi.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "http_fixture.h"

namespace bl::test {
namespace {

class OpenApi : public ServerFixture {};

void each_reference(const Json& json, const std::function<void(const std::string&)>& visit) {
  if (json.is_object() && json.contains("$ref")) visit(json["$ref"]);
  if (!json.is_structured()) return;
  for (const Json& child : json) each_reference(child, visit);
}

TEST_F(OpenApi, DescribesEveryRouteAndNothingElse) {
  open({.access = {.keys = {"first-key"}}});
  const SocketAnswer answer = get("/openapi.json");
  ASSERT_EQ(answer.status, 200) << "it needs no key";
  const Json document = answer.json();
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::size_t operations = 0;
  for (const Json& path : document["paths"]) operations += path.size();
  std::set<std::string> known;
  for (const server::Route& route : server_->router().routes()) {
    known.insert(route.method + " " + route.pattern);
    EXPECT_FALSE(route.summary.empty()) << route.pattern;
  }
  EXPECT_EQ(operations, known.size());
  for (const auto& [name, bodies] : server::openapi_bodies().items()) {
    EXPECT_TRUE(known.contains(name)) << name << " is described, and no route has it";
  }
  each_reference(document, [&](const std::string& reference) {
    EXPECT_TRUE(document.contains(Json::json_pointer(reference.substr(1)))) << reference;
  });
}

TEST_F(OpenApi, SaysWhatIsAnswered) {
  open();
  const Json paths = get("/openapi.json").json()["paths"];
  const Json& models = paths["/v1/models/{model}"]["get"];
  EXPECT_EQ(models["parameters"][0]["name"], "model");
  const Json& complete = paths["/completion"]["post"];
  EXPECT_EQ(complete["responses"]["400"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/LlamaError");
  EXPECT_TRUE(complete["responses"]["200"]["content"].contains("text/event-stream"));
  EXPECT_TRUE(complete["responses"]["200"]["content"].contains("application/json"));
  EXPECT_EQ(paths["/health"]["get"]["security"][0], Json::object());
  EXPECT_EQ(paths["/api/latest/generate"]["post"]["requestBody"]["required"], true);
}

}  // namespace
}  // namespace bl::test
