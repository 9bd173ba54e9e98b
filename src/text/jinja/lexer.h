#pragma once
// Splits a template into text, tag marks and the tokens inside tags, with the white space control
// of trim_blocks, lstrip_blocks and the signs - and +.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/jinja/arena.h"

namespace bl::jinja {

enum class Token : std::uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // text between the quotes, with escapes unresolved
  kInteger,
  kFloat,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kTilde,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAssign,
  kDot,
  kComma,
  kColon,
  kSemicolon,
  kPipe,
  kLeftParen,
  kRightParen,
  kLeftBracket,
  kRightBracket,
  kLeftBrace,
  kRightBrace,
  kEnd,
};

struct LexedToken {
  Token type = Token::kEnd;
  std::uint32_t line = 1;
  std::string_view text;
};

// Returns the tokens of a template; the last one is kEnd. `source` must be valid UTF-8. The texts
// point into a copy in `arena`, which must outlive them. Throws Error(kInvalidFile), whose message
// starts with `name` and the line.
std::vector<LexedToken> tokenize(std::string_view source, std::string_view name, Arena& arena);

}  // namespace bl::jinja
