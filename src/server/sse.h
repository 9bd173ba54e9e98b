#pragma once
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "http/exchange.h"

namespace bl::server {

// Server-sent events. The stream begins with the first thing that is written, so that a request
// that fails before has an ordinary answer.
class SseStream {
 public:
  bool begun() const { return begun_; }
  void begin(http::Exchange& to);
  void data(http::Exchange& to, const Json& json);                          // "data: …"
  void last(http::Exchange& to);                                            // "data: [DONE]"
  void event(http::Exchange& to, std::string_view name, const Json& json);  // with "event: name"
  void comment(http::Exchange& to);  // keeps the connection open

 private:
  bool begun_ = false;
  std::string buffer_;
};

}  // namespace bl::server
