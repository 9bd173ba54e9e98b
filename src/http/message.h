#pragma once
// Requests and answers of HTTP/1.1 as the rooms above see them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bl::http {

struct Field {
  std::string name{};  // of requests: in lower case
  std::string value{};
};

struct Request {
  std::string method{};         // "GET"; case matters
  std::string target{};         // as sent
  std::string path{};           // percent-decoded, without the query; begins with '/', or is "*"
  std::string query{};          // as sent, without '?'
  std::vector<Field> fields{};  // in the order in which they were sent
  std::string body{};           // chunks joined
  std::string peer{};           // "127.0.0.1:40312", or "unix"
  bool over_unix_socket = false;
  bool has_version_1_1 = true;  // false: HTTP/1.0

  // Returns the first value of a field, or nothing. `name` is in lower case.
  const std::string* field(std::string_view name) const;
  // Returns the decoded value of a query parameter, or nothing.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<Field> fields{};  // Content-Length, Connection and Date are added when it is sent
  std::string body{};
};

// "Not Found" for 404.
std::string_view reason_of(int status);

// Decodes %XX. Returns nothing where it is malformed or gives a NUL byte.
std::optional<std::string> percent_decoded(std::string_view text);

// Splits and decodes a request target in origin form or absolute form into `request`. Returns false
// where it is neither, nor "*".
bool read_target(std::string_view target, Request& request);

std::string lower_case(std::string_view text);  // ASCII letters only
bool equal_without_case(std::string_view a, std::string_view b);

}  // namespace bl::http
