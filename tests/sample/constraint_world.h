#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sample/constraint.h"
#include "sample/constraint_compiler.h"
#include "sample/grammar_tokenizers.h"
#include "text/token_bytes.h"

namespace bl::test {

inline ConstraintSpec regex(std::string text) {
  return {.kind = ConstraintSpec::Kind::kRegex, .text = std::move(text)};
}
inline ConstraintSpec grammar(std::string text) {
  return {.kind = ConstraintSpec::Kind::kGrammar, .text = std::move(text)};
}
inline ConstraintSpec schema(std::string text) {
  return {.kind = ConstraintSpec::Kind::kJsonSchema, .text = std::move(text)};
}

// A vocabulary, its texts and its compiler.
struct World {
  explicit World(GrammarTokenizer from) : made(std::move(from)), compiler(*made.tokenizer) {}
  Constraint start(const ConstraintSpec& spec) {
    return Constraint(compiler.compile(spec), {made.end});
  }
  // Whether the constraint takes this text, byte by byte, and may end behind it.
  bool takes(const ConstraintSpec& spec, std::string_view text) {
    Constraint constraint = start(spec);
    for (const char c : text) {
      const std::int32_t token = token_of(c);
      if (!constraint.allows(token)) return false;
      constraint.accept(token);
    }
    return constraint.complete();
  }
  std::int32_t token_of(char byte) {
    const auto found = std::find(bytes.begin(), bytes.end(), std::string(1, byte));
    return static_cast<std::int32_t>(found - bytes.begin());
  }

  GrammarTokenizer made;
  ConstraintCompiler compiler;
  std::vector<std::string> bytes = token_bytes(*made.tokenizer);
};

}  // namespace bl::test
