#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "model/module_pattern.h"

namespace bl {

// A value that PEFT gives to the modules whose name, or the end of it behind a dot, matches.
class PeftRule {
 public:
  // `where` names the rule in errors, which are those of ModulePattern.
  PeftRule(const std::string& pattern, double value, const std::string& where);
  bool matches(std::string_view module) const;
  bool is_name() const { return !pattern_; }
  double value() const { return value_; }

 private:
  std::string name_;  // where the pattern is one
  std::optional<ModulePattern> pattern_;
  double value_;
};

// The adapter_config.json of a LoRA, as far as it says what is computed. Whatever would change the
// result and is not done here is refused when it is read.
struct PeftConfig {
  // Throws kInvalidFile, kUnsupported with file, key, what was found and what would be right.
  // `file` names the document.
  PeftConfig(const OrderedJson& document, std::string file);

  // Of a module, by the name it had where the adapter was trained.
  std::int64_t rank_of(std::string_view module) const;
  double scale_of(std::string_view module) const;  // alpha / rank, or alpha / √rank
  bool is_target(std::string_view module) const;
  // Whether a copy of its own stood for it while the adapter was trained (modules_to_save).
  bool is_saved(std::string_view module) const;

  std::string file;
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;
  std::vector<PeftRule> rank_rules;
  std::vector<PeftRule> alpha_rules;
  // Names of modules, or ends of them. "all-linear" and patterns are any: the tensors say what
  // there is.
  std::vector<std::string> targets;
  bool any_target = false;
  std::optional<std::vector<std::int64_t>> layers;  // layers_to_transform
  std::vector<std::string> saved;                   // modules_to_save: names, or ends of them
};

// Whether a name in such a list is the module's or, behind a dot, the end of it.
bool names_module(std::string_view name, std::string_view module);

}  // namespace bl
