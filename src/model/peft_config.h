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

// A value that PEFT assigns to modules whose whole name, or its end after a dot, matches a pattern.
class PeftRule {
 public:
  // `where` names the rule in errors. Throws as ModulePattern does.
  PeftRule(const std::string& pattern, double value, const std::string& where);
  bool matches(std::string_view module) const;
  bool is_name() const { return !pattern_; }
  double value() const { return value_; }

 private:
  std::string name_;  // set if the pattern is a plain name
  std::optional<ModulePattern> pattern_;
  double value_;
};

// The adapter_config.json of a LoRA, as far as it affects the result. Options that would change the
// result and are not implemented are refused when it is read.
struct PeftConfig {
  // `file` names the document in errors. Throws kInvalidFile and kUnsupported with file, key, what
  // was found and what would be right.
  PeftConfig(const OrderedJson& document, std::string file);

  // For a module, by the name it had when the adapter was trained.
  std::int64_t rank_of(std::string_view module) const;
  double scale_of(std::string_view module) const;  // alpha / rank, or alpha / √rank
  bool is_target(std::string_view module) const;
  // Whether the module was trained as a whole copy (modules_to_save).
  bool is_saved(std::string_view module) const;

  std::string file;
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;
  std::vector<PeftRule> rank_rules;
  std::vector<PeftRule> alpha_rules;
  // Names of modules, or ends of names. "all-linear" and patterns allow any module; the tensors
  // show which ones there are.
  std::vector<std::string> targets;
  bool any_target = false;
  std::optional<std::vector<std::int64_t>> layers;  // layers_to_transform
  std::vector<std::string> saved;                   // modules_to_save: names, or ends of names
};

// Whether `name` is the module's whole name, or its end after a dot.
bool names_module(std::string_view name, std::string_view module);

}  // namespace bl
