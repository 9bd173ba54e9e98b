#include "format/gguf_text.h"

#include <cstddef>

namespace bl {

bool is_utf8(std::string_view text) {
  std::size_t i = 0;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  while (i < text.size()) {
    const unsigned lead = byte(i);
    std::size_t more = 0;
    unsigned low = 0x80;
    unsigned high = 0xbf;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead >= 0xc2 && lead <= 0xdf) more = 1;
    if (lead >= 0xe0 && lead <= 0xef) more = 2;
    if (lead >= 0xf0 && lead <= 0xf4) more = 3;
    if (more == 0 || i + more >= text.size()) return false;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    if (byte(i + 1) < low || byte(i + 1) > high) return false;
    for (std::size_t k = 2; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    i += more + 1;
  }
  return true;
}

}  // namespace bl
