#include "base/error.h"

namespace bl {

void fail_formatted(ErrorCode code, fmt::string_view format, fmt::format_args args) {
  throw Error(code, fmt::vformat(format, args));
}

}  // namespace bl
