#pragma once
// The interface to the grammar library. xgrammar_library.cc implements it; builds without the
// library (BL_GRAMMAR=OFF) use no_grammar_library.cc, which returns null.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sample/constraint_spec.h"

namespace bl {

// The state of one text in a grammar. After a call throws, the walk is unusable.
class GrammarWalk {
 public:
  virtual ~GrammarWalk() = default;
  // Sets bit i % 32 of word i / 32 if token i may follow, and clears all others. Returns whether
  // any token may. words: [ceil(vocab / 32)].
  virtual bool fill(std::span<std::uint32_t> words) = 0;
  // Advances past the token. Returns false and changes nothing if it may not follow.
  virtual bool accept(std::int32_t token) = 0;
  // Undoes the last `tokens` accepted tokens.
  virtual void rollback(std::int32_t tokens) = 0;
  // Whether the text so far is a complete sentence of the grammar.
  virtual bool complete() const = 0;
};

// A grammar compiled for one vocabulary. Immutable and thread-safe.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  virtual std::size_t bytes() const = 0;
  virtual std::unique_ptr<GrammarWalk> start() const = 0;
};

class GrammarLibrary {
 public:
  virtual ~GrammarLibrary() = default;
  // Compiles a constraint that validate() has passed. Throws kInvalidArgument if the grammar is
  // wrong. Recursion is as deep as the text nests, so call it on a deep stack. Thread-safe.
  virtual std::unique_ptr<CompiledGrammar> compile(const ConstraintSpec& spec) const = 0;
};

// `tokens` holds the bytes of each token, empty for tokens that are not text. `special`: ids of
// special tokens, which are no text either, but may be named by their ids in structural tags.
// Returns null if the build has no grammar library.
std::unique_ptr<GrammarLibrary> open_grammar_library(std::vector<std::string> tokens,
                                                     std::vector<std::int32_t> special = {});

}  // namespace bl
