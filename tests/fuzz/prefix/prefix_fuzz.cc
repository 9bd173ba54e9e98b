// Any bytes as a saved prefix: an Error, or a text and pages that hold together. The hashes are put
// right before every second input, so that what is behind them is reached.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "cache/prefix_file.h"

namespace {

template <class T>
T number(const std::vector<std::byte>& bytes, std::size_t at) {
  T value{};
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void put_hash(std::vector<std::byte>& bytes, std::size_t at, const bl::Hash128& hash) {
  std::memcpy(bytes.data() + at, &hash, sizeof hash);
}

// The hashes that these bytes should have.
void repair(std::vector<std::byte>& bytes) {
  const std::size_t header = number<std::uint32_t>(bytes, 12);
  if (header < 32 || header > bytes.size()) return;
  bl::SipHash hash;
  hash.update(std::span(bytes).subspan(32, header - 32));
  put_hash(bytes, 16, hash.finish());
  const std::uint64_t page = number<std::uint64_t>(bytes, 64);
  if (page == 0 || page > bytes.size()) return;
  std::size_t at = header;
  for (std::int64_t i = 0; at + page + sizeof(bl::Hash128) <= bytes.size(); ++i) {
    const auto content = std::span(bytes).subspan(at, static_cast<std::size_t>(page));
    put_hash(bytes, at + content.size(), bl::page_hash(hash.finish(), i, content));
    at += content.size() + sizeof(bl::Hash128);
  }
}

void read_all(const std::string& path) {
  bl::PrefixReader reader(path);
  const bl::PrefixText& text = reader.text();
  BL_CHECK(text.pages() > 0);
  BL_CHECK(text.ids.size() == static_cast<std::size_t>(text.pages()) * bl::kPageSlots);
  BL_CHECK(text.kind.page_bytes * static_cast<std::uint64_t>(text.pages()) < reader.bytes());
  reader.check_kind(text.kind);
  std::vector<std::byte> page(static_cast<std::size_t>(text.kind.page_bytes));
  for (std::int64_t i = 0; i < text.pages(); ++i) reader.read_page(page);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("prefix", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  if (size > 1) std::memcpy(bytes.data(), data + 1, size - 1);
  if (data[0] % 2 == 1) repair(bytes);
  BL_CHECK(ftruncate(file, 0) == 0);
  BL_CHECK(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  try {
    read_all(path);
  } catch (const bl::Error&) {
  }
  return 0;
}
