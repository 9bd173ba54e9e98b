#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl::parquet {

// Decompresses a block of Snappy (google/snappy, format_description.txt) of exactly `size` bytes
// once decompressed. Throws kInvalidFile; `what` names the block.
std::vector<std::byte> decompress_snappy(std::span<const std::byte> block, std::uint64_t size,
                                         const std::string& what);

}  // namespace bl::parquet
