#include "server/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace bl::server {
namespace {

constexpr std::string_view kBearer = "bearer ";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view key_of(const http::Request& head) {
  if (const std::string* value = head.field("authorization")) {
    std::string_view text = trimmed(*value);
    if (text.size() > kBearer.size() &&
        http::equal_without_case(text.substr(0, kBearer.size()), kBearer)) {
      return trimmed(text.substr(kBearer.size()));
    }
  }
  for (const char* name : {"x-api-key", "api-key", "x-admin-key"}) {
    if (const std::string* value = head.field(name)) return trimmed(*value);
  }
  return {};
}

// Every key is compared, so that the time does not tell which one nearly fits.
std::optional<std::size_t> place_of(std::string_view key, const std::vector<std::string>& keys) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (equal_in_constant_time(key, keys[i])) found = i;
  }
  return found;
}

// "example.org" of "example.org:8080", "[::1]" of "[::1]:80".
std::string_view without_port(std::string_view host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos) return host;
  if (bracket != std::string_view::npos && colon < bracket) return host;
  return host.substr(0, colon);
}

bool is_address(std::string_view host) {
  if (host.starts_with('[')) return true;
  return !host.empty() && std::all_of(host.begin(), host.end(),
                                      [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

std::string_view host_of_origin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? origin : origin.substr(scheme + 3);
}

// Whether a page comes from this machine, whatever its port.
bool is_local_origin(std::string_view origin) {
  const std::string host = http::lower_case(without_port(host_of_origin(origin)));
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

bool changes_something(std::string_view method) {
  return method != "GET" && method != "HEAD" && method != "OPTIONS";
}

}  // namespace

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i] ^ other));
  }
  return difference == 0 && !secret.empty();
}

Rights AccessPolicy::rights_of(const http::Request& head) const {
  const std::string_view key = key_of(head);
  Rights rights;
  if (!key.empty()) {
    const auto admin = place_of(key, options_.admin_keys);
    const auto ordinary = place_of(key, options_.keys);
    rights.admin = admin.has_value();
    rights.known = admin || ordinary;
    if (admin) {
      rights.key_name = fmt::format("admin-{}", *admin + 1);
    } else if (ordinary) {
      rights.key_name = fmt::format("key-{}", *ordinary + 1);
    }
  }
  rights.known |= !has_keys();
  return rights;
}

std::string AccessPolicy::without_keys(std::string text) const {
  for (const auto* keys : {&options_.keys, &options_.admin_keys}) {
    for (const std::string& key : *keys) {
      for (auto at = text.find(key); !key.empty() && at != text.npos; at = text.find(key, at)) {
        text.replace(at, key.size(), "***");
        at += 3;
      }
    }
  }
  return text;
}

void AccessPolicy::check(const http::Request& head, Access access) const {
  if (access == Access::kOpen) return;
  const Rights rights = rights_of(head);
  if (access == Access::kKey && rights.known) return;
  if (access == Access::kAdmin && rights.admin) return;
  if (access == Access::kAdmin && rights.known) {
    throw HttpError(403, "admin_key_needed",
                    options_.admin_keys.empty()
                        ? "this needs an admin key, and none is configured; start the server with "
                          "--admin-key"
                        : "this needs an admin key (--admin-key); the key of the request is an "
                          "ordinary one");
  }
  throw HttpError(401, "invalid_api_key",
                  key_of(head).empty() ? "a key is needed: send it as 'Authorization: Bearer KEY'"
                                       : "the key of the request is not one of this server's");
}

bool AccessPolicy::is_own_host(std::string_view host) const {
  const std::string name = http::lower_case(without_port(host));
  if (is_address(name) || name == "localhost" || name.ends_with(".localhost") ||
      name == "host.docker.internal") {
    return true;
  }
  return std::any_of(options_.allowed_hosts.begin(), options_.allowed_hosts.end(),
                     [&](const std::string& each) { return http::equal_without_case(each, name); });
}

bool AccessPolicy::allows_origin(std::string_view origin) const {
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string& each) {
                       return each == "*" || http::equal_without_case(each, origin) ||
                              (each == "localhost" && is_local_origin(origin));
                     });
}

void AccessPolicy::check_browser(const http::Request& head) const {
  const std::string* host = head.field("host");
  if (host != nullptr && options_.only_loopback && !has_keys() && !head.over_unix_socket &&
      head.path != "/health" && !is_own_host(*host)) {
    throw HttpError(403, "host_not_allowed",
                    "the Host of the request is not a name of this server; allow it with "
                    "--allow-host");
  }
  if (!changes_something(head.method)) return;
  const std::string* origin = head.field("origin");
  bool foreign = false;
  if (origin != nullptr) {
    const std::string_view from = host_of_origin(*origin);
    const bool own = host != nullptr && http::equal_without_case(from, *host);
    const bool allowed_host = std::any_of(
        options_.allowed_hosts.begin(), options_.allowed_hosts.end(), [&](const std::string& each) {
          return http::equal_without_case(each, without_port(from));
        });
    foreign = !own && !allowed_host && !allows_origin(*origin);
  } else if (const std::string* site = head.field("sec-fetch-site")) {
    foreign = http::equal_without_case(*site, "cross-site");
  }
  if (foreign) {
    throw HttpError(403, "origin_not_allowed",
                    "web pages of other sites may not use this server; allow one with "
                    "--cors-origin");
  }
}

std::vector<http::Field> AccessPolicy::cors_fields(const http::Request& head) const {
  const std::string* origin = head.field("origin");
  if (origin == nullptr || !allows_origin(*origin)) return {};
  // Keys come in fields that a page writes itself, so that a browser's credentials give no rights.
  std::vector<http::Field> fields{{"Access-Control-Allow-Origin", *origin},
                                  {"Access-Control-Allow-Credentials", "true"},
                                  {"Vary", "Origin"}};
  if (head.method == "OPTIONS") {
    fields.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"});
    const std::string* wanted = head.field("access-control-request-headers");
    fields.push_back({"Access-Control-Allow-Headers",
                      wanted == nullptr ? "authorization, content-type, x-api-key" : *wanted});
    fields.push_back({"Access-Control-Max-Age", "600"});
  }
  return fields;
}

}  // namespace bl::server
