#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json_form.h"

namespace bl {

// Collects the rules of a grammar as EBNF. Rules are referred to by name.
class RuleWriter {
 public:
  explicit RuleWriter(JsonWhitespace whitespace) : whitespace_(whitespace) {}

  // A rule that is one of `choices`; each is a sequence of names and literals. The same choices
  // give the same rule.
  std::string choice(const std::vector<std::string>& choices);
  // A name for a rule whose choices come later by define().
  std::string reserve();
  void define(const std::string& name, const std::vector<std::string>& choices);

  // White space that the form allows, then `next`.
  enum class Gap { kBehindSeparator, kElsewhere };
  std::string gap(const std::string& next, Gap gap = Gap::kElsewhere);

  // Texts of an automaton over bytes. It must not accept the empty text.
  std::string automaton(const Automaton& automaton);
  // JSON strings with a bounded number of characters: of the states of `automaton`, the `mains`
  // that follow the first two are entered with every character.
  struct Counts {
    std::size_t fewest;
    std::optional<std::size_t> most;
    std::size_t mains;
  };
  std::string counted(const Automaton& automaton, const Counts& counts);
  // Between `fewest` and `most` times the rule `item`. The grammar library counts them as it goes.
  std::string repeated(const std::string& item, std::size_t fewest, std::size_t most);

  // The whole grammar, with the rule `root` leading to `first`.
  std::string text(const std::string& first) const;

 private:
  std::string add(const std::string& body, const std::string& prefix);

  JsonWhitespace whitespace_;
  std::map<std::string, std::string> names_;  // by body and prefix
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace bl
