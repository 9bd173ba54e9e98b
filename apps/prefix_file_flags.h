#pragma once
#include <string>

#include "engine/engine.h"

namespace bl {

// The options of run and chat about files that hold the keys and values of a text's beginning
// (docs/formats/prefix.md), so that it is computed once and not in every process.
struct PrefixFileFlags {
  std::string from;
  std::string to;

  template <class V>
  void visit(V&& v) {
    v.group("Prefix files");
    v(from, {"--load-prefix", "FILE",
             "take the beginning of the text from it, as far as it is the same", "none"});
    v(to, {"--save-prefix", "FILE",
           "save what has been computed of the text, in whole pages of 256 tokens", "none"});
  }

  // What can be known before the model loads: kIo.
  void check() const;
  // Throws what Engine::load_prefix() does.
  void load(Engine& engine) const;
  // Throws kInvalidArgument for a text of less than a page, before it is computed.
  void check_text(const Request& request) const;
  // Throws what Engine::save_prefix() does.
  void save(Engine& engine, const Request& request) const;
};

}  // namespace bl
