#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "http/exchange.h"
#include "server/error_shape.h"

namespace bl::server {

// Whom a route answers.
enum class Access {
  kOpen,   // everybody
  kKey,    // who has a key, where keys are configured
  kAdmin,  // who has an admin key
};

// What a request's key entitles to.
struct Rights {
  bool known = false;  // has a key, or none is needed
  bool admin = false;
  // Tells keys apart without showing them, such as "key-1"; empty: no key.
  std::string key_name{};
};

// A request that has found its route.
struct Call {
  std::shared_ptr<http::Exchange> exchange;
  std::vector<std::pair<std::string, std::string>> path_values{};  // of the pattern's {names}
  Rights rights{};

  const http::Request& request() const { return exchange->request(); }
  // The value of {name}. The pattern must have it.
  const std::string& path_value(std::string_view name) const;
  // Reads the body. Throws HttpError 400 where it is no JSON object.
  OrderedJson body() const;
};

struct Route {
  std::string method;
  // "/v1/models/{model}"; the last {name*} takes the rest of the path, slashes included. Patterns
  // that begin with /v1/ are found without that prefix, too.
  std::string pattern;
  Access access = Access::kKey;
  ErrorShape shape = ErrorShape::kOpenAi;
  bool quick = false;  // runs on the socket's thread: it neither waits nor computes
  std::string summary;
  std::function<void(Call call)> handle;
};

class Router {
 public:
  void add(Route route);
  const std::vector<Route>& routes() const { return routes_; }

  struct Found {
    const Route* route = nullptr;  // null: no route has the path
    std::vector<std::pair<std::string, std::string>> path_values{};
    std::string allowed{};  // with a null route: methods that the path has, "GET, POST"
  };
  // HEAD is answered by the routes of GET. A pattern that has the path as it stands goes before one
  // that has it without its /v1.
  Found find(std::string_view method, std::string_view path) const;
  // The methods of a path, "GET, HEAD, OPTIONS"; empty: no route has it.
  std::string methods_of(std::string_view path) const;
  // The shape of errors for a path, whether or not a route has it.
  ErrorShape shape_of(std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace bl::server
