#include "parquet/text_column.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "parquet/decompress.h"
#include "parquet/metadata.h"
#include "parquet/run_decoder.h"

namespace bl::parquet {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kMaxPage = std::uint64_t{1} << 30;  // bytes, decompressed
constexpr std::uint64_t kMaxTexts = std::uint64_t{1} << 30;
// What a text takes beside its bytes, so that the limit also bounds the number of empty texts.
constexpr std::uint64_t kTextCost = sizeof(std::string);
constexpr std::size_t kFooterTail = 8;  // the footer's length and "PAR1"

std::uint32_t read_u32(Bytes bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

[[noreturn]] void fail_column(const std::string& what, std::string_view why) {
  fail(ErrorCode::kInvalidFile, "{} is damaged: {}", what, why);
}

// Takes the first `size` bytes away from `bytes`.
Bytes take(Bytes& bytes, std::uint64_t size, const std::string& what) {
  if (size > bytes.size()) fail_column(what, "it ends too early");
  const Bytes first = bytes.first(static_cast<std::size_t>(size));
  bytes = bytes.subspan(static_cast<std::size_t>(size));
  return first;
}

// Takes a text behind its length (encoding PLAIN).
std::string_view take_text(Bytes& bytes, const std::string& what) {
  const std::uint32_t size = read_u32(take(bytes, 4, what));
  const Bytes text = take(bytes, size, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

// Finds and reads the footer at the end of a file.
FileMetadata read_footer(Bytes file, const std::string& what) {
  const auto is_magic = [&](Bytes bytes, const char* magic) {
    return std::memcmp(bytes.data(), magic, 4) == 0;
  };
  if (file.size() < 4 + kFooterTail || !is_magic(file, "PAR1")) {
    if (file.size() >= 4 && is_magic(file, "PARE")) {
      fail(ErrorCode::kUnsupported, "{} is encrypted; write it without encryption", what);
    }
    fail(ErrorCode::kInvalidFile, "{} is not a Parquet file: it does not begin with PAR1", what);
  }
  if (!is_magic(file.last(4), "PAR1")) {
    fail_column(what, "it does not end with PAR1, as if it had been cut");
  }
  const std::uint64_t size = read_u32(file.last(kFooterTail));
  if (size > file.size() - 4 - kFooterTail) fail_column(what, "its footer is longer than the file");
  const std::size_t begin = file.size() - kFooterTail - static_cast<std::size_t>(size);
  return read_metadata(file.subspan(begin, static_cast<std::size_t>(size)), what + ": footer");
}

std::size_t choose_column(const FileMetadata& metadata, const std::string& what) {
  const std::vector<Column>& columns = metadata.columns;
  for (const char* name : {"text", "content"}) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].name == name && columns[i].is_flat && columns[i].is_bytes) return i;
    }
  }
  std::vector<std::size_t> texts;
  std::string names;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].is_flat && columns[i].is_text) texts.push_back(i);
    if (i < 50) names += (i == 0 ? "" : ", ") + columns[i].name;
  }
  if (texts.size() == 1) return texts[0];
  fail(ErrorCode::kInvalidArgument,
       "{} has no column \"text\" or \"content\" and {} columns of texts; rename the one that is "
       "meant to \"text\" (columns: {})",
       what, texts.size(), names);
}

// Reads one column, page by page.
class ColumnReader {
 public:
  ColumnReader(Bytes file, const Column& column, std::string what)
      : file_(file), column_(column), what_(std::move(what)) {}

  void read(const ColumnChunk& chunk, std::int64_t rows) {
    if (chunk.is_elsewhere) {
      fail(ErrorCode::kUnsupported, "{} is in another file; give a file that holds it", what_);
    }
    if (chunk.values != rows) fail_column(what_, "it has another number of rows than its group");
    Bytes pages = pages_of(chunk);
    dictionary_.clear();
    dictionary_page_.clear();
    std::int64_t left = rows;
    while (left > 0) {
      const PageHeader header = read_page_header(pages, what_);
      take(pages, header.header_bytes, what_);
      const Bytes page = take(pages, static_cast<std::uint64_t>(header.compressed_size), what_);
      if (header.size > static_cast<std::int64_t>(kMaxPage)) {
        fail(ErrorCode::kLimit, "{} has a page of {} bytes; at most {} are read", what_,
             header.size, kMaxPage);
      }
      left -= read_page(header, page, chunk.codec, left);
    }
  }

  std::vector<std::string> texts() { return std::move(texts_); }

 private:
  Bytes pages_of(const ColumnChunk& chunk) const {
    const std::int64_t begin =
        std::min(chunk.data_page, chunk.dictionary_page.value_or(chunk.data_page));
    // Some writers have put 0 for a dictionary that is not there; "PAR1" stands at 0.
    const auto from = static_cast<std::uint64_t>(begin > 0 ? begin : chunk.data_page);
    const auto size = static_cast<std::uint64_t>(chunk.size);
    if (from > file_.size() || size > file_.size() - from) {
      fail_column(what_, "its pages lie behind the end of the file");
    }
    return file_.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(size));
  }

  // Returns how many rows it had.
  std::int64_t read_page(const PageHeader& header, Bytes page, std::int32_t codec,
                         std::int64_t left) {
    const auto size = static_cast<std::uint64_t>(header.size);
    switch (static_cast<PageType>(header.type)) {
      case PageType::kIndex:
        return 0;
      case PageType::kDictionary:
        dictionary_page_ = decompress(codec, page, size, what_);
        read_dictionary(header);
        return 0;
      case PageType::kData: {
        check_rows(header, left);
        const std::vector<std::byte> bytes = decompress(codec, page, size, what_);
        read_v1(header, bytes);
        return header.values;
      }
      case PageType::kDataV2:
        check_rows(header, left);
        read_v2(header, page, codec);
        return header.values;
    }
    fail_column(what_, "it has a page of an unknown type");
  }

  void check_rows(const PageHeader& header, std::int64_t left) const {
    if (header.values > left) fail_column(what_, "its pages have more rows than their group");
  }

  void read_dictionary(const PageHeader& header) {
    Bytes rest = dictionary_page_;
    dictionary_.clear();
    for (std::int64_t i = 0; i < header.values; ++i) dictionary_.push_back(take_text(rest, what_));
  }

  void read_v1(const PageHeader& header, Bytes rest) {
    Bytes levels;
    if (column_.is_optional) {
      if (header.level_encoding != static_cast<std::int32_t>(Encoding::kRle)) {
        fail(ErrorCode::kUnsupported,
             "{} has levels in encoding {} of Parquet, which only very old files have; write the "
             "file again",
             what_, header.level_encoding);
      }
      levels = take(rest, read_u32(take(rest, 4, what_)), what_);
    }
    read_values(header, levels, rest);
  }

  void read_v2(const PageHeader& header, Bytes page, std::int32_t codec) {
    take(page, static_cast<std::uint64_t>(header.repetition_bytes), what_);
    const Bytes levels = take(page, static_cast<std::uint64_t>(header.definition_bytes), what_);
    const std::int64_t size = header.size - header.repetition_bytes - header.definition_bytes;
    if (size < 0) fail_column(what_, "its levels are larger than their page");
    // A page without values has nothing to decompress.
    const bool is_compressed = header.is_compressed && !page.empty();
    const auto bytes = decompress(is_compressed ? codec : static_cast<std::int32_t>(Codec::kNone),
                                  page, static_cast<std::uint64_t>(size), what_);
    read_values(header, levels, bytes);
  }

  void read_values(const PageHeader& header, Bytes levels, Bytes values) {
    RunDecoder defined(levels, 1, what_);
    const auto is_there = [&] { return !column_.is_optional || defined.next() == 1; };
    switch (static_cast<Encoding>(header.encoding)) {
      case Encoding::kPlain:
        for (std::int64_t i = 0; i < header.values; ++i) {
          if (is_there()) add(take_text(values, what_));
        }
        return;
      case Encoding::kPlainDictionary:
      case Encoding::kRleDictionary: {
        std::optional<RunDecoder> indices;
        for (std::int64_t i = 0; i < header.values; ++i) {
          if (!is_there()) continue;
          if (!indices) indices.emplace(indices_of(values));
          add(dictionary_text(indices->next()));
        }
        return;
      }
      case Encoding::kRle:
        break;
    }
    fail(ErrorCode::kUnsupported,
         "{} is in encoding {} of Parquet; write the file with plain or dictionary encoding", what_,
         header.encoding);
  }

  RunDecoder indices_of(Bytes values) const {
    const int bits = static_cast<int>(take(values, 1, what_)[0]);
    if (bits > 32) fail_column(what_, "its indices are wider than 32 bits");
    return RunDecoder(values, bits, what_);
  }

  std::string_view dictionary_text(std::uint32_t index) const {
    if (index >= dictionary_.size()) fail_column(what_, "an index is beyond the dictionary");
    return dictionary_[index];
  }

  void add(std::string_view text) {
    cost_ += text.size() + kTextCost;
    if (cost_ > kMaxTexts) {
      fail(ErrorCode::kLimit, "{} has more than {} bytes of texts; give a part of it", what_,
           kMaxTexts);
    }
    texts_.emplace_back(text);
  }

  Bytes file_;
  const Column& column_;
  std::string what_;
  std::vector<std::byte> dictionary_page_;
  std::vector<std::string_view> dictionary_;  // into dictionary_page_
  std::vector<std::string> texts_;
  std::uint64_t cost_ = 0;
};

}  // namespace

std::vector<std::string> read_text_column(const std::filesystem::path& path) {
  return read_text_column(MappedFile(path).bytes(), path.string());
}

std::vector<std::string> read_text_column(std::span<const std::byte> file,
                                          const std::string& name) {
  const FileMetadata metadata = read_footer(file, name);
  const std::size_t at = choose_column(metadata, name);
  const Column& column = metadata.columns[at];
  ColumnReader reader(file, column, name + ": column " + column.name);
  for (const RowGroup& group : metadata.groups) reader.read(group.columns[at], group.rows);
  return reader.texts();
}

}  // namespace bl::parquet
