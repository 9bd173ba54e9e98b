#pragma once
// Writing to stdout, which carries results and nothing else.

#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Appends to stdout, buffered. Throws kIo if it cannot be written, so that a full disk is not taken
// for success.
void write_result(std::string_view text);
void flush_results();

// Write a JSON document and a newline. Invalid UTF-8 is replaced, not refused.
void write_json(const Json& document);
void write_json_line(const Json& document);

}  // namespace bl
