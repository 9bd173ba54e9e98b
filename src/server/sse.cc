#include "server/sse.h"

#include "base/json.h"

namespace bl::server {
namespace {

std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void SseStream::begin(http::Exchange& to) {
  if (begun_) return;
  begun_ = true;
  // Proxies that buffer answers would hold tokens back.
  to.begin({200,
            {{"Content-Type", "text/event-stream; charset=utf-8"},
             {"Cache-Control", "no-cache"},
             {"X-Accel-Buffering", "no"}},
            {}});
}

void SseStream::data(http::Exchange& to, const Json& json) {
  begin(to);
  buffer_ = "data: ";
  buffer_ += one_line(json);
  buffer_ += "\n\n";
  to.write(buffer_);
}

void SseStream::last(http::Exchange& to) {
  begin(to);
  to.write("data: [DONE]\n\n");
}

void SseStream::event(http::Exchange& to, std::string_view name, const Json& json) {
  begin(to);
  buffer_ = "event: ";
  buffer_ += name;
  buffer_ += "\ndata: ";
  buffer_ += one_line(json);
  buffer_ += "\n\n";
  to.write(buffer_);
}

void SseStream::comment(http::Exchange& to) {
  begin(to);
  to.write(": still working\n\n");
}

}  // namespace bl::server
