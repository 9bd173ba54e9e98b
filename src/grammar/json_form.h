#pragma once
#include <compare>
#include <cstddef>
#include <string_view>

namespace bl {

// White space between the tokens of JSON.
struct JsonWhitespace {
  enum class Kind {
    kDefault,  // none, one blank, or one line break with up to 64 blanks
    kCompact,  // none
    kOneLine,  // one blank behind every comma and colon
    kUpTo,     // up to `most` characters of any white space
  };
  Kind kind = Kind::kDefault;
  std::size_t most = 0;

  auto operator<=>(const JsonWhitespace&) const = default;
};

// Reads "default", "compact" or a number: how many characters of any white space may stand between
// two tokens. Throws kInvalidArgument with a phrase that follows the name of the option.
JsonWhitespace json_whitespace_of(std::string_view text);

// How values of a JSON schema are written.
struct JsonForm {
  JsonWhitespace whitespace{};
  // Objects with properties and no word on others, and lists with prefixItems and no word on
  // further items, hold nothing else.
  bool closed = true;
  // The schema is the `parameters` of a tool, where empty properties mean {}.
  bool tool_parameters = false;
};

}  // namespace bl
