#include "server/json_lines.h"

#include <utility>

#include "base/json.h"

namespace bl::server {

void JsonLines::write(http::Exchange& to, const Json& line) {
  if (!std::exchange(begun_, true)) {
    to.begin({200,
              {{"Content-Type", "application/x-ndjson"},
               {"Cache-Control", "no-cache"},
               {"X-Accel-Buffering", "no"}},
              {}});
  }
  to.write(json_text(line) + "\n");
}

}  // namespace bl::server
