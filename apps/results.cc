#include "results.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

[[noreturn]] void report_failure() {
  fail(ErrorCode::kIo, "cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace

void write_result(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) report_failure();
}

void flush_results() {
  if (std::fflush(stdout) != 0) report_failure();
}

void write_json(const Json& document) { write_result(json_text(document, 1) + "\n"); }

void write_json_line(const Json& document) { write_result(json_text(document) + "\n"); }

}  // namespace bl
