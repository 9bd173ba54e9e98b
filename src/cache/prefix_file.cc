#include "cache/prefix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace bl {
namespace {

constexpr std::string_view kMagic = "BLPREFIX";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kAlignment = 64;
// Size of the fixed part of the header. docs/formats/prefix.md has the table.
constexpr std::size_t kFixedBytes = 96;
constexpr std::size_t kHashedFrom = 32;
constexpr std::uint32_t kMostLayers = 1 << 14;
constexpr std::uint32_t kMostText = 1 << 16;  // limit on the bytes of each of salt, rope and order
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 26;

std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class HeaderWriter {
 public:
  template <class T>
  void number(T value) {
    raw(&value, sizeof value);
  }
  void text(std::string_view text) { raw(text.data(), text.size()); }
  void raw(const void* data, std::size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
  }
  void patch(std::size_t at, const void* data, std::size_t bytes) {
    std::memcpy(bytes_.data() + at, data, bytes);
  }
  void pad() { bytes_.resize(round_up(bytes_.size()), '\0'); }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads values from bytes whose number has been checked before.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    T value{};
    raw(&value, sizeof value);
    return value;
  }
  std::string text(std::size_t bytes) {
    std::string text(bytes, '\0');
    raw(text.data(), bytes);
    return text;
  }
  void raw(void* data, std::size_t bytes) {
    BL_CHECK(bytes <= bytes_.size());
    if (bytes > 0) std::memcpy(data, bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
  }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

Hash128 hash_of(std::span<const std::byte> bytes) {
  SipHash hash;
  hash.update(bytes);
  return hash.finish();
}

// The number for cache types in a file: the type of keys in bits 0 to 7 and, if it differs, one
// more than the type of values from bit 8 on.
std::uint32_t number_of(CacheTypes types) {
  const auto keys = static_cast<std::uint32_t>(types.k);
  return types.are_one() ? keys : keys | (static_cast<std::uint32_t>(types.v) + 1) << 8;
}

std::optional<CacheTypes> types_of(std::uint32_t number) {
  const std::uint32_t keys = number & 0xffu;
  const std::uint32_t values = number >> 8 == 0 ? keys : (number >> 8) - 1;
  if (keys >= kCacheTypes.size() || values >= kCacheTypes.size()) return std::nullopt;
  const CacheTypes types{static_cast<CacheType>(keys), static_cast<CacheType>(values)};
  if (number_of(types) != number || !types.go_together()) return std::nullopt;
  return types;
}

std::string header_of(const PrefixText& text) {
  const PageKind& kind = text.kind;
  HeaderWriter out;
  out.text(kMagic);
  out.number(kVersion);
  out.number(std::uint32_t{0});  // size of the header, set below
  out.number(Hash128{});         // hash of the header, set below
  out.number(kind.model);
  out.number(number_of(kind.type));
  out.number(std::uint32_t{kPageSlots});
  out.number(static_cast<std::uint64_t>(text.ids.size()));
  out.number(kind.page_bytes);
  out.number(static_cast<std::uint32_t>(kind.layers.size()));
  out.number(static_cast<std::uint32_t>(kind.order.size()));
  out.number(static_cast<std::uint32_t>(kind.rope.size()));
  out.number(static_cast<std::uint32_t>(text.salt.size()));
  out.number(std::uint64_t{0});  // reserved
  BL_CHECK(out.bytes().size() == kFixedBytes);
  out.raw(kind.layers.data(), kind.layers.size() * sizeof(PageKind::Layer));
  out.text(kind.order);
  out.text(kind.rope);
  out.text(text.salt);
  out.raw(text.ids.data(), text.ids.size() * sizeof(std::int32_t));
  out.pad();
  const auto size = static_cast<std::uint32_t>(out.bytes().size());
  out.patch(12, &size, sizeof size);
  const Hash128 hash = hash_of(std::as_bytes(std::span(out.bytes())).subspan(kHashedFrom));
  out.patch(16, &hash, sizeof hash);
  return std::string(out.bytes());
}

void check_writable(const PrefixText& text) {
  const auto most = [](const char* what, std::size_t found, std::uint64_t limit) {
    if (found > limit) {
      fail(ErrorCode::kInvalidArgument, "a prefix file holds at most {} {}, not {}", limit, what,
           found);
    }
  };
  most("tokens", text.ids.size(), kMostTokens);
  most("layers", text.kind.layers.size(), kMostLayers);
  most("bytes of salt", text.salt.size(), kMostText);
  BL_CHECK(text.kind.rope.size() <= kMostText && text.kind.order.size() <= kMostText);
  BL_CHECK(!text.ids.empty() && text.ids.size() % kPageSlots == 0 && text.kind.page_bytes > 0);
}

}  // namespace

Hash128 page_hash(const Hash128& header, std::int64_t index, std::span<const std::byte> page) {
  SipHash hash(header.low, header.high);
  hash.update(static_cast<std::uint64_t>(index));
  hash.update(page);
  return hash.finish();
}

PrefixWriter::PrefixWriter(const std::filesystem::path& path, const PrefixText& text)
    : file_(path), page_bytes_(text.kind.page_bytes), pages_(text.pages()) {
  check_writable(text);
  const std::string header = header_of(text);
  std::memcpy(&header_hash_, header.data() + 16, sizeof header_hash_);
  file_.write(header);
  bytes_ = header.size();
}

void PrefixWriter::write_page(std::span<const std::byte> page) {
  BL_CHECK(page.size() == page_bytes_ && written_ < pages_);
  const Hash128 hash = page_hash(header_hash_, written_, page);
  file_.write(page);
  file_.write(std::as_bytes(std::span(&hash, 1)));
  ++written_;
  bytes_ += page.size() + sizeof hash;
}

void PrefixWriter::commit() {
  BL_CHECK(written_ == pages_);
  file_.commit();
}

template <class... Args>
void PrefixReader::refuse(fmt::format_string<Args...> format, Args&&... args) const {
  fail(ErrorCode::kInvalidFile, "{}: {}", path_.string(),
       fmt::format(format, std::forward<Args>(args)...));
}

PrefixReader::Descriptor::~Descriptor() {
  if (fd >= 0) close(fd);
}

PrefixReader::PrefixReader(const std::filesystem::path& path)
    : path_(path),
      // O_NONBLOCK, so that opening a pipe does not block.
      file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_.fd < 0) {
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
         path.string(), std::strerror(errno));
  }
  read_header();
}

void PrefixReader::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = pread(file_.fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail(ErrorCode::kIo, "cannot read {}: {}", path_.string(), std::strerror(errno));
    }
    if (got == 0) refuse("the file became shorter while it was read");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void PrefixReader::read_header() {
  struct stat status {};
  if (fstat(file_.fd, &status) != 0 || !S_ISREG(status.st_mode)) refuse("not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  std::array<std::byte, kFixedBytes> fixed;
  if (size_ < fixed.size())
    refuse("{} bytes are too few for a saved prefix; the file is incomplete", size_);
  read(0, fixed);
  HeaderReader in(fixed);
  if (in.text(kMagic.size()) != kMagic)
    refuse("not a saved prefix (it should begin with {})", kMagic);
  if (const auto version = in.number<std::uint32_t>(); version != kVersion) {
    fail(ErrorCode::kUnsupported,
         "{}: has version {} of the format, but this program reads only version {}; save the "
         "prefix again",
         path_.string(), version, kVersion);
  }
  header_bytes_ = in.number<std::uint32_t>();
  header_hash_ = in.number<Hash128>();
  PageKind& kind = text_.kind;
  kind.model = in.number<Hash128>();
  const auto type = in.number<std::uint32_t>();
  const auto slots = in.number<std::uint32_t>();
  const auto tokens = in.number<std::uint64_t>();
  kind.page_bytes = in.number<std::uint64_t>();
  const auto layers = in.number<std::uint32_t>();
  const auto order_bytes = in.number<std::uint32_t>();
  const auto rope_bytes = in.number<std::uint32_t>();
  const auto salt_bytes = in.number<std::uint32_t>();
  const std::optional<CacheTypes> types = types_of(type);
  if (!types) refuse("has the unknown cache type {}", type);
  kind.type = *types;
  if (slots != kPageSlots)
    refuse("has pages of {} tokens, but {} were expected", slots, kPageSlots);
  if (tokens == 0 || tokens % kPageSlots != 0 || tokens > kMostTokens) {
    refuse("has {} tokens, but a multiple of {} up to {} was expected", tokens, kPageSlots,
           kMostTokens);
  }
  if (layers > kMostLayers || std::max({order_bytes, rope_bytes, salt_bytes}) > kMostText) {
    refuse("has {} layers and texts of {}, {} and {} bytes; at most {} and {} are allowed", layers,
           order_bytes, rope_bytes, salt_bytes, kMostLayers, kMostText);
  }
  // All terms are bounded, so the sum cannot overflow.
  const std::uint64_t needed =
      round_up(kFixedBytes + layers * sizeof(PageKind::Layer) + order_bytes + rope_bytes +
               salt_bytes + tokens * sizeof(std::int32_t));
  if (header_bytes_ != needed || header_bytes_ > size_) {
    refuse("has a header of {} bytes, but {} were expected in a file of {} bytes", header_bytes_,
           needed, size_);
  }
  const std::uint64_t pages = tokens / kPageSlots;
  const std::uint64_t each = (size_ - header_bytes_) / pages;
  if ((size_ - header_bytes_) % pages != 0 || each <= sizeof(Hash128) ||
      kind.page_bytes != each - sizeof(Hash128)) {
    refuse("{} bytes do not fit {} pages of {} bytes: the file was truncated or extended", size_,
           pages, kind.page_bytes);
  }
  std::vector<std::byte> rest(static_cast<std::size_t>(header_bytes_) - kFixedBytes);
  read(kFixedBytes, rest);
  SipHash hash;
  hash.update(std::span(fixed).subspan(kHashedFrom));
  hash.update(rest);
  if (hash.finish() != header_hash_) refuse("the header is damaged; save the prefix again");
  HeaderReader body(rest);
  kind.layers.resize(layers);
  body.raw(kind.layers.data(), layers * sizeof(PageKind::Layer));
  kind.order = body.text(order_bytes);
  kind.rope = body.text(rope_bytes);
  text_.salt = body.text(salt_bytes);
  text_.ids.resize(static_cast<std::size_t>(tokens));
  body.raw(text_.ids.data(), text_.ids.size() * sizeof(std::int32_t));
}

void PrefixReader::check_kind(const PageKind& own) const {
  const PageKind& kind = text_.kind;
  const auto differ = [&](std::string_view what, std::string_view theirs, std::string_view ours) {
    fail(ErrorCode::kInvalidArgument, "{}: was saved {} {}, but this session has {}",
         path_.string(), what, theirs, ours);
  };
  if (kind.model != own.model) differ("by model", kind.model.hex(), own.model.hex());
  if (kind.rope != own.rope) differ("with the rotation", kind.rope, own.rope);
  if (kind.type != own.type) differ("with --cache", name_of(kind.type), name_of(own.type));
  if (kind.order != own.order) differ("by a backend with pages of", kind.order, own.order);
  if (kind.layers != own.layers || kind.page_bytes != own.page_bytes) {
    differ("with pages of",
           fmt::format("{} layers and {} bytes", kind.layers.size(), kind.page_bytes),
           fmt::format("{} layers and {} bytes", own.layers.size(), own.page_bytes));
  }
}

void PrefixReader::skip(std::int64_t pages) {
  BL_CHECK(pages >= 0 && next_ + pages <= text_.pages());
  next_ += pages;
}

void PrefixReader::read_page(std::span<std::byte> page) {
  BL_CHECK(page.size() == text_.kind.page_bytes && next_ < text_.pages());
  const std::uint64_t offset =
      header_bytes_ + static_cast<std::uint64_t>(next_) * (page.size() + sizeof(Hash128));
  Hash128 hash;
  read(offset, page);
  read(offset + page.size(), std::as_writable_bytes(std::span(&hash, 1)));
  if (hash != page_hash(header_hash_, next_, page)) {
    refuse("page {} of {} is damaged; save the prefix again", next_ + 1, text_.pages());
  }
  ++next_;
}

}  // namespace bl
