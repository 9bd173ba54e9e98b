#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl::parquet {

// Decompresses a part of a page to exactly `size` bytes. `codec`: a number of the format, of which
// those in Codec are known. Memory grows with what has been decompressed, whatever `size` says.
// Throws kUnsupported for other codecs, kInvalidFile; `what` names the page in errors.
std::vector<std::byte> decompress(std::int32_t codec, std::span<const std::byte> bytes,
                                  std::uint64_t size, const std::string& what);

}  // namespace bl::parquet
