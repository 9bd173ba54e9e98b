#include "parquet/decompress.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "parquet/metadata.h"
#include "parquet/snappy.h"

namespace bl::parquet {
namespace {

constexpr std::uint64_t kFirstStep = 1 << 16;

[[noreturn]] void fail_compressed(const std::string& what, const char* codec) {
  fail(ErrorCode::kInvalidFile, "{} is damaged: it cannot be decompressed ({})", what, codec);
}

// Lets `fill(place)` write behind what is there until `out` has `size` bytes; it returns how many
// it has written, of which 0 means that there are no more. The room for it doubles.
template <class Fill>
std::vector<std::byte> grow(std::uint64_t size, Fill&& fill) {
  std::vector<std::byte> out;
  std::size_t used = 0;
  while (used < size) {
    if (used == out.size()) {
      out.resize(
          static_cast<std::size_t>(std::min(size, std::max<std::uint64_t>(kFirstStep, 2 * used))));
    }
    const std::size_t wrote = fill(std::span(out).subspan(used));
    if (wrote == 0) break;
    used += wrote;
  }
  out.resize(used);
  return out;
}

std::vector<std::byte> decompress_gzip(std::span<const std::byte> bytes, std::uint64_t size,
                                       const std::string& what) {
  z_stream stream{};
  // 32: takes the header of gzip or of zlib.
  if (inflateInit2(&stream, 32 + MAX_WBITS) != Z_OK) {
    fail(ErrorCode::kOutOfMemory, "{}: there is no memory to decompress it", what);
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  bool ended = false;
  std::vector<std::byte> out = grow(size, [&](std::span<std::byte> place) -> std::size_t {
    if (ended) return 0;
    stream.next_out = reinterpret_cast<Bytef*>(place.data());
    stream.avail_out = static_cast<uInt>(place.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) fail_compressed(what, "gzip");
    ended = status == Z_STREAM_END;
    return place.size() - stream.avail_out;
  });
  if (out.size() != size) fail_compressed(what, "gzip");
  return out;
}

std::vector<std::byte> decompress_zstd(std::span<const std::byte> bytes, std::uint64_t size,
                                       const std::string& what) {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                             ZSTD_freeDStream);
  if (!stream) fail(ErrorCode::kOutOfMemory, "{}: there is no memory to decompress it", what);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::vector<std::byte> out = grow(size, [&](std::span<std::byte> place) {
    ZSTD_outBuffer to{place.data(), place.size(), 0};
    // A call may take some input and give nothing yet.
    for (std::size_t before = in.size + 1; to.pos == 0 && before != in.pos;) {
      before = in.pos;
      if (ZSTD_isError(ZSTD_decompressStream(stream.get(), &to, &in)))
        fail_compressed(what, "zstd");
    }
    return to.pos;
  });
  if (out.size() != size) fail_compressed(what, "zstd");
  return out;
}

}  // namespace

std::vector<std::byte> decompress(std::int32_t codec, std::span<const std::byte> bytes,
                                  std::uint64_t size, const std::string& what) {
  switch (static_cast<Codec>(codec)) {
    case Codec::kNone:
      if (bytes.size() != size) {
        fail(ErrorCode::kInvalidFile, "{} is damaged: it has {} bytes instead of {}", what,
             bytes.size(), size);
      }
      return {bytes.begin(), bytes.end()};
    case Codec::kSnappy:
      return decompress_snappy(bytes, size, what);
    case Codec::kGzip:
      return decompress_gzip(bytes, size, what);
    case Codec::kZstd:
      return decompress_zstd(bytes, size, what);
  }
  fail(ErrorCode::kUnsupported,
       "{} is compressed with codec {} of Parquet; write the file with snappy, gzip, zstd or none",
       what, codec);
}

}  // namespace bl::parquet
