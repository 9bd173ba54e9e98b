#include "base/utf8.h"

#include <cstdint>

namespace bl {
namespace {

struct Sequence {
  unsigned size = 0;      // bytes that are judged together
  bool complete = false;  // they form a character
  bool open = false;      // they begin a character, and the text ends before it does
};

// Judges the bytes at `offset` by table 3-7 of the Unicode standard (well-formed UTF-8).
Sequence sequence_at(std::string_view bytes, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
  const unsigned want = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (unsigned i = 1; i < want; ++i) {
    if (offset + i >= bytes.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xbf;
  }
  return {want, true, false};
}

// The length of the run of ASCII bytes that starts at `offset`; looks at eight bytes at a time.
std::size_t ascii_run(std::string_view bytes, std::size_t offset) {
  std::size_t i = offset;
  while (i + 8 <= bytes.size()) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, bytes.data() + i, 8);
    if (word & 0x8080808080808080u) break;
    i += 8;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i - offset;
}

}  // namespace

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return code_point_at(text, begin);
}

void append_utf8(char32_t value, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xc0 | value >> 6);
    put(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    put(0xe0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  } else {
    put(0xf0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3f));
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  }
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += is_continuation(c) ? 0 : 1;
  return count;
}

bool is_valid_utf8(std::string_view text) {
  std::size_t offset = 0;
  while (true) {
    offset += ascii_run(text, offset);
    if (offset == text.size()) return true;
    const Sequence sequence = sequence_at(text, offset);
    if (!sequence.complete) return false;
    offset += sequence.size;
  }
}

std::size_t decode_lossy(std::string_view bytes, bool final, std::string& out,
                         Replacement replacement) {
  std::size_t offset = 0;
  while (offset < bytes.size()) {
    const std::size_t run = ascii_run(bytes, offset);
    out.append(bytes.substr(offset, run));
    offset += run;
    if (offset == bytes.size()) break;
    const Sequence sequence = sequence_at(bytes, offset);
    if (sequence.open && !final) break;
    if (sequence.complete) {
      out.append(bytes.substr(offset, sequence.size));
    } else {
      const unsigned count = replacement == Replacement::kByte ? sequence.size : 1;
      for (unsigned i = 0; i < count; ++i) out.append("\xef\xbf\xbd");
    }
    offset += sequence.size;
  }
  return offset;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  decode_lossy(bytes, true, out);
  return out;
}

}  // namespace bl
