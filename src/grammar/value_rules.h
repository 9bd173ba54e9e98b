#pragma once
#include <map>
#include <string>
#include <vector>

#include "grammar/rule_writer.h"
#include "grammar/value_table.h"

namespace bl {

// Writes a rule for every value of a ValueTable that is asked for.
class ValueRules {
 public:
  ValueRules(ValueTable& table, RuleWriter& writer, bool closed)
      : table_(table), writer_(writer), closed_(closed) {}

  // The name of the rule for a value, which must be possible. It is written by finish().
  std::string rule(int value);
  // Writes all rules that have been asked for, and those that they need.
  void finish();

  // The rule for a member's key and its quotes, or a literal.
  std::string key(const std::string& name);
  std::string strings(const StringForm& form);

  ValueTable& table() { return table_; }
  RuleWriter& writer() { return writer_; }
  bool closed() const { return closed_; }

 private:
  std::vector<std::string> choices(int value);

  ValueTable& table_;
  RuleWriter& writer_;
  bool closed_;
  std::map<int, std::string> names_;
  std::vector<int> open_;
};

// The rule for the arrays or objects of one form.
std::string array_rule(ValueRules& rules, const ArrayForm& form);
std::string object_rule(ValueRules& rules, const ObjectForm& form);

}  // namespace bl
