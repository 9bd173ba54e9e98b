#pragma once
// The library of grammars as the rest of this folder sees it. xgrammar_library.cc is it; a build
// without it (BL_GRAMMAR=OFF) has no_grammar_library.cc, which has none.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sample/constraint_spec.h"

namespace bl {

// One text on its way through a grammar. What throws leaves it unusable.
class GrammarWalk {
 public:
  virtual ~GrammarWalk() = default;
  // Sets bit i % 32 of word i / 32 where token i may follow, and clears the others.
  // Returns whether any may. words: [ceil(vocab / 32)].
  virtual bool fill(std::span<std::uint32_t> words) = 0;
  // False, and nothing has changed, where the token may not follow.
  virtual bool accept(std::int32_t token) = 0;
  // Takes the newest tokens back.
  virtual void rollback(std::int32_t tokens) = 0;
  // The text so far is a whole sentence of the grammar.
  virtual bool complete() const = 0;
};

// A grammar for one vocabulary. Immutable, thread-safe.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  virtual std::size_t bytes() const = 0;
  virtual std::unique_ptr<GrammarWalk> start() const = 0;
};

class GrammarLibrary {
 public:
  virtual ~GrammarLibrary() = default;
  // The constraint has been validated. Throws Error kInvalidArgument for a grammar that is wrong.
  // Recursion grows with the text: give it a deep stack. Thread-safe.
  virtual std::unique_ptr<CompiledGrammar> compile(const ConstraintSpec& spec) const = 0;
};

// `tokens`: the bytes of each token, empty for those that are no text. Null where this build has no
// library.
std::unique_ptr<GrammarLibrary> open_grammar_library(std::vector<std::string> tokens);

}  // namespace bl
