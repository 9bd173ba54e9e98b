#include "grammar/json_form.h"

#include <charconv>

#include "base/error.h"

namespace bl {

JsonWhitespace json_whitespace_of(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  if (text == "default") return {};
  if (text == "compact") return {.kind = JsonWhitespace::Kind::kCompact};
  JsonWhitespace result{.kind = JsonWhitespace::Kind::kUpTo};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.most);
  if (error != std::errc() || end != text.data() + text.size() || result.most > kMost) {
    fail(ErrorCode::kInvalidArgument,
         "is '{}', should be default, compact, or a number of characters up to {}",
         text.substr(0, 60), kMost);
  }
  return result;
}

}  // namespace bl
