#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "server/error_shape.h"
#include "server/router.h"

namespace bl::server {

// Who may ask for what, decided by the header of a request alone.
struct AccessOptions {
  std::vector<std::string> keys{};
  std::vector<std::string> admin_keys{};  // also ordinary keys
  std::vector<std::string>
      allowed_hosts{};                      // names in Host that are this server, besides localhost
  std::vector<std::string> cors_origins{};  // origins whose pages may use the server; "*": any
  bool only_loopback = true;  // it listens on loopback addresses and Unix sockets alone
};

class AccessPolicy {
 public:
  explicit AccessPolicy(AccessOptions options) : options_(std::move(options)) {}

  // The key comes as "Authorization: Bearer …", "x-api-key", "api-key" or "x-admin-key".
  Rights rights_of(const http::Request& head) const;
  // Throws HttpError 401 or 403 where the request may not use a route of this access.
  void check(const http::Request& head, Access access) const;
  // Throws HttpError 403 where a web page of another site may be behind the request: a Host that is
  // not this server's (DNS rebinding), or a foreign Origin on a request that changes something.
  void check_browser(const http::Request& head) const;
  // The text with every configured key in it replaced, for logs.
  std::string without_keys(std::string text) const;
  // The CORS fields of an answer; none where the origin is not allowed.
  std::vector<http::Field> cors_fields(const http::Request& head) const;

 private:
  bool has_keys() const { return !options_.keys.empty() || !options_.admin_keys.empty(); }
  bool is_own_host(std::string_view host) const;
  bool allows_origin(std::string_view origin) const;

  AccessOptions options_;
};

// Compares in a time that depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace bl::server
