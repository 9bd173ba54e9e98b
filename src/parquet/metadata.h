#pragma once
// Parquet's metadata, as far as reading one flat column needs it (parquet-format,
// src/main/thrift/parquet.thrift). Numbers are checked for their range, not against each other.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bl::parquet {

enum class Codec { kNone = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };
enum class Encoding { kPlain = 0, kPlainDictionary = 2, kRle = 3, kRleDictionary = 8 };
enum class PageType { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };

// A column of the file: a leaf of the schema, in the order of the schema.
struct Column {
  std::string name;          // the names of nested ones are joined by dots
  bool is_flat = false;      // at the top level, and not repeated
  bool is_optional = false;  // of a flat one: its rows may be null
  bool is_bytes = false;     // holds texts, or bytes that may be texts
  bool is_text = false;      // the file says that it holds texts
};

// The part of a row group that belongs to a column.
struct ColumnChunk {
  bool is_elsewhere = false;  // in another file
  std::int32_t codec = 0;     // a Codec, or another number of the format
  std::int64_t values = 0;    // nulls included
  std::int64_t size = 0;      // bytes of its pages with their headers
  std::int64_t data_page = 0;
  std::optional<std::int64_t> dictionary_page;
};

struct RowGroup {
  std::int64_t rows = 0;
  std::vector<ColumnChunk> columns;
};

struct FileMetadata {
  std::vector<Column> columns;
  std::vector<RowGroup> groups;
};

// Reads the footer's Thrift struct. Throws kInvalidFile; `what` names it in errors.
FileMetadata read_metadata(std::span<const std::byte> bytes, const std::string& what);

struct PageHeader {
  std::int32_t type = -1;  // a PageType
  std::int64_t size = 0;   // bytes of the page once decompressed
  std::int64_t compressed_size = 0;
  std::int64_t values = 0;  // nulls included
  std::int32_t encoding = -1;
  std::int32_t level_encoding = -1;  // of definition levels
  // In a page of kDataV2 the levels stand before the values and are never compressed: their bytes.
  std::int64_t definition_bytes = 0;
  std::int64_t repetition_bytes = 0;
  bool is_compressed = true;
  std::size_t header_bytes = 0;  // of the header itself
};

// Reads the header at the beginning of `bytes`. Throws kInvalidFile.
PageHeader read_page_header(std::span<const std::byte> bytes, const std::string& what);

}  // namespace bl::parquet
