#pragma once
// Reads the texts of a Parquet file, such as the data sets of Hugging Face.
//
// Goals: files that pyarrow, Spark, Polars and DuckDB write by default; safety with hostile files.
// Non-goals: nested columns, other types, filters, encryption, files of several parts.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace bl::parquet {

// The texts of column "text" or "content" in the order of the rows, or, where there is neither, of
// the only column of texts. Rows without a value are left out. The texts need not be UTF-8. Throws
// kNotFound or kIo where the file cannot be read; kInvalidFile where it is damaged;
// kInvalidArgument with the names of the columns where none can be chosen; kUnsupported for a codec
// or an encoding that is not known; kLimit where there is more than 1 GiB of texts.
std::vector<std::string> read_text_column(const std::filesystem::path& path);
// Reads the bytes of a file; `name` stands for it in errors.
std::vector<std::string> read_text_column(std::span<const std::byte> file, const std::string& name);

}  // namespace bl::parquet
