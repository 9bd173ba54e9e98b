#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace bl::server {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);  // the slash
  const std::string_view segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size());
  return segment;
}

std::optional<Values> match(std::string_view pattern, std::string_view path) {
  Values values;
  while (!pattern.empty() && !path.empty()) {
    if (path.front() != '/') return std::nullopt;
    const std::string_view wanted = take_segment(pattern);
    if (wanted.ends_with("*}")) {
      values.emplace_back(wanted.substr(1, wanted.size() - 3), path.substr(1));
      return path.size() > 1 ? std::optional(values) : std::nullopt;
    }
    const std::string_view given = take_segment(path);
    if (wanted.starts_with('{')) {
      if (given.empty()) return std::nullopt;
      values.emplace_back(wanted.substr(1, wanted.size() - 2), given);
    } else if (wanted != given) {
      return std::nullopt;
    }
  }
  return pattern.empty() && path.empty() ? std::optional(values) : std::nullopt;
}

constexpr std::string_view kPrefix = "/v1";

std::optional<Values> match_without_prefix(std::string_view pattern, std::string_view path) {
  if (!pattern.starts_with("/v1/")) return std::nullopt;
  return match(pattern.substr(kPrefix.size()), path);
}

std::optional<Values> match_either(std::string_view pattern, std::string_view path) {
  std::optional<Values> values = match(pattern, path);
  return values ? values : match_without_prefix(pattern, path);
}

}  // namespace

const std::string& Call::path_value(std::string_view name) const {
  const auto found = std::find_if(path_values.begin(), path_values.end(),
                                  [&](const auto& value) { return value.first == name; });
  BL_CHECK(found != path_values.end());
  return found->second;
}

OrderedJson Call::body() const {
  OrderedJson body;
  try {
    body = parse_ordered_json(request().body, "the body of the request");
  } catch (const Error& error) {
    throw HttpError(400, "", error.what());
  }
  if (!body.is_object()) throw HttpError(400, "", "the body of the request is not a JSON object");
  return body;
}

void Router::add(Route route) { routes_.push_back(std::move(route)); }

Router::Found Router::find(std::string_view method, std::string_view path) const {
  const auto has_method = [&](const Route& route) {
    return route.method == method || (method == "HEAD" && route.method == "GET");
  };
  for (const auto matches : {match, match_without_prefix}) {
    for (const Route& route : routes_) {
      if (!has_method(route)) continue;
      if (auto values = matches(route.pattern, path)) return {&route, *std::move(values), {}};
    }
  }
  return {nullptr, {}, methods_of(path)};
}

std::string Router::methods_of(std::string_view path) const {
  std::vector<std::string_view> methods;
  const auto add = [&](std::string_view method) {
    if (std::find(methods.begin(), methods.end(), method) == methods.end()) {
      methods.push_back(method);
    }
  };
  for (const Route& route : routes_) {
    if (!match_either(route.pattern, path)) continue;
    add(route.method);
    if (route.method == "GET") add("HEAD");
  }
  if (!methods.empty()) add("OPTIONS");
  return fmt::format("{}", fmt::join(methods, ", "));
}

ErrorShape Router::shape_of(std::string_view path) const {
  for (const auto matches : {match, match_without_prefix}) {
    for (const Route& route : routes_) {
      if (matches(route.pattern, path)) return route.shape;
    }
  }
  for (const std::string_view kobold : {"/api/v1/", "/api/latest/", "/api/extra/"}) {
    if (path.starts_with(kobold)) return ErrorShape::kKobold;
  }
  if (path.starts_with("/api/")) return ErrorShape::kOllama;
  if (path.starts_with("/v1/messages/")) return ErrorShape::kAnthropic;
  return ErrorShape::kOpenAi;
}

}  // namespace bl::server
