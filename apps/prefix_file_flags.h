#pragma once
#include <string>

#include "engine/engine.h"

namespace bl {

// The options of run and chat for files that hold the keys and values of the beginning of a text
// (docs/formats/prefix.md), so that it is computed once and not in every process.
struct PrefixFileFlags {
  std::string from;
  std::string to;

  template <class V>
  void visit(V&& v) {
    v.group("Prefix files");
    v(from, {"--load-prefix", "FILE", "use the saved keys and values, as far as the texts agree",
             "none"});
    v(to,
      {"--save-prefix", "FILE", "save the keys and values, in whole pages of 256 tokens", "none"});
  }

  // Checks what can be checked before the model is loaded. Throws kIo.
  void check() const;
  // Loads the file, if one is given. Throws as Engine::load_prefix() does.
  void load(Engine& engine) const;
  // Throws kInvalidArgument if the prompt is shorter than a page, before it is computed.
  void check_text(const Request& request) const;
  // Saves the text of `request`, if a file is given. Throws as Engine::save_prefix() does.
  void save(Engine& engine, const Request& request) const;
};

}  // namespace bl
