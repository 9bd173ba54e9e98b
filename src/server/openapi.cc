#include "server/openapi.h"

#include <fmt/format.h>

#include "base/json.h"
#include "server/openapi_documents.h"

namespace bl::server {
namespace {

struct StatusText {
  const char* status;
  const char* about;
};
constexpr StatusText kErrors[] = {
    {"400", "Something in the request is wrong; the message says what"},
    {"401", "The key is missing or wrong"},
    {"403", "The key, the host or the origin may not do this"},
    {"404", "There is no such model or thing"},
    {"405", "The path takes other methods"},
    {"413", "The body is too large"},
    {"415", "The body is compressed"},
    {"429", "The key has used up what it may; Retry-After says when to try again"},
    {"500", "Something went wrong here"},
    {"501", "The model or the configuration does not support this"},
    {"503", "No model is loaded, or too many requests wait"}};

const char* schema_name(ErrorShape shape) {
  switch (shape) {
    case ErrorShape::kAnthropic:
      return "AnthropicError";
    case ErrorShape::kOllama:
      return "OllamaError";
    case ErrorShape::kLlama:
      return "LlamaError";
    case ErrorShape::kKobold:
      return "KoboldError";
    case ErrorShape::kOpenAi:
      break;
  }
  return "OpenAiError";
}

// openapi/bodies.json: {"routes": …, "components": …}.
const Json& document() {
  static const Json kDocument = parse_json(openapi_documents().front().text, "openapi/bodies.json");
  return kDocument;
}

Json in_json(const Json& schema) { return {{"application/json", {{"schema", schema}}}}; }

Json reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

// "{name*}" of patterns is "{name}" here.
std::string path_of(std::string pattern) {
  const std::size_t star = pattern.find("*}");
  if (star != std::string::npos) pattern.erase(star, 1);
  return pattern;
}

Json path_parameters(const std::string& path) {
  Json parameters = Json::array();
  for (std::size_t at = path.find('{'); at != path.npos; at = path.find('{', at + 1)) {
    const std::string name = path.substr(at + 1, path.find('}', at) - at - 1);
    parameters.push_back({{"name", name},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  return parameters;
}

Json answers_of(const Route& route, const Json& bodies) {
  Json answers = Json::object();
  for (const StatusText& error : kErrors) {
    answers[error.status] = {{"description", error.about},
                             {"content", in_json(reference(schema_name(route.shape)))}};
  }
  Json content = Json::object();
  if (bodies.contains("answer") || !bodies.contains("answers")) {
    content = in_json(bodies.value("answer", Json::object()));
  }
  const Json others = bodies.value("answers", Json::object());
  for (const auto& [type, schema] : others.items()) {
    content[type] = {{"schema", schema}};
  }
  answers["200"] = {{"description", route.summary}, {"content", content}};
  if (bodies.contains("unavailable")) {
    answers["503"]["content"] = in_json(bodies["unavailable"]);
  }
  return answers;
}

Json operation_of(const Route& route, const std::string& path) {
  static const Json kNothing = Json::object();
  const Json& all = openapi_bodies();
  const auto found = all.find(route.method + " " + route.pattern);
  const Json& bodies = found == all.end() ? kNothing : *found;
  Json operation = {{"summary", route.summary}, {"responses", answers_of(route, bodies)}};
  operation["security"] =
      route.access == Access::kOpen
          ? Json::array({Json::object()})
          : Json::array({{{"key", Json::array()}}, {{"x-api-key", Json::array()}}});
  if (route.access == Access::kAdmin) operation["description"] = "Needs an admin key.";
  if (Json parameters = path_parameters(path); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  for (const Json& parameter : bodies.value("query", Json::array())) {
    operation["parameters"].push_back(parameter);
  }
  if (route.method == "POST" || route.method == "PUT") {
    const Json schema = bodies.value("body", Json{{"type", "object"}});
    operation["requestBody"] = {{"required", bodies.value("body_required", true)},
                                {"content", in_json(schema)}};
  }
  return operation;
}

}  // namespace

const Json& openapi_bodies() { return document().at("routes"); }

Json openapi_document(const Router& router) {
  Json paths = Json::object();
  for (const Route& route : router.routes()) {
    const std::string path = path_of(route.pattern);
    std::string method = http::lower_case(route.method);
    if (paths.contains(path) && paths[path].contains(method)) continue;
    paths[path][method] = operation_of(route, path);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "bitloom"},
            {"version", "1"},
            {"description",
             "Every path that begins with /v1/ also answers without it; GET also as HEAD."}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", document().at("components")},
            {"securitySchemes",
             {{"key", {{"type", "http"}, {"scheme", "bearer"}}},
              {"x-api-key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}}}}};
}

}  // namespace bl::server
