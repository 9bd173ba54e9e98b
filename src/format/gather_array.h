#pragma once
#include <cstdint>
#include <span>

#include "format/tensor_source.h"

namespace bl {

// Whether a part of a matrix gets the bytes of its weights. Without them it still says everything
// that Backend::packed_bytes() asks for, and making it reads none of the file's codes.
enum class CodeCopy : std::uint8_t { kCopied, kLeftOut };

// Rows indices[0], indices[1], … of an array [rows, columns] or [rows] of any dtype: a view where
// they follow each other, else a copy.
HostArray gather_rows(const HostArray& array, std::span<const std::int32_t> indices,
                      CodeCopy codes = CodeCopy::kCopied);

// Columns indices[0], indices[1], … of an array [rows, columns] of any dtype: a view, whose rows
// lie further apart than they are long, where they follow each other, else a copy.
HostArray gather_columns(const HostArray& array, std::span<const std::int32_t> indices,
                         CodeCopy codes = CodeCopy::kCopied);

}  // namespace bl
