#pragma once
// stdout, which carries results and nothing else.

#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Appends to stdout (buffered). Throws kIo when it cannot be written: a full disk must not look
// like success.
void write_result(std::string_view text);
void flush_results();

// A JSON document and a newline. Text that is not UTF-8 is replaced, never refused.
void write_json(const Json& document);
void write_json_line(const Json& document);

}  // namespace bl
