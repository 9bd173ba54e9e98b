#pragma once
#include <string>

#include "base/json_fwd.h"
#include "http/exchange.h"

namespace bl::server {

// A stream of JSON objects, one a line (application/x-ndjson). It begins with the first line, so
// that a request that fails before has an ordinary answer.
class JsonLines {
 public:
  bool begun() const { return begun_; }
  void write(http::Exchange& to, const Json& line);

 private:
  bool begun_ = false;
};

}  // namespace bl::server
