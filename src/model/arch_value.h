#pragma once
// The small language in which archs/*.json say where a number comes from (archs/README.md).
//
//   "num_attention_heads"            a key of config.json (dotted path, {i} is the layer)
//   "=hidden/heads"                  product, quotient and sqrt() of sizes, keys and numbers
//   1.0e-6, true, {"text": "silu"}   a constant
//   {"if": "use_qk_norm", "is": …}   an alternative with a condition
//   [ … ]                            the first of these that exists
//
// Non-goals: general expressions. Whatever needs more is a new kind of layer, and that is C++.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace bl {

// Terms that must all hold: "key" (true, non-zero or non-empty), "!key", "key=text", "key=1" (a
// number), "?key" (exists, even if empty or false).
struct Condition {
  std::vector<std::string> terms;
};

struct ArchValue {
  enum class Kind { kKey, kExpression, kConstant };
  struct Alternative {
    Kind kind = Kind::kConstant;
    std::string text;                      // key or expression
    std::shared_ptr<const Json> constant;  // a scalar; only for kConstant
    Condition condition;
  };
  std::vector<Alternative> alternatives;
  bool given() const { return !alternatives.empty(); }
};

// Adds the keys of config.json that a condition or a value names. Names in expressions that are
// sizes of the architecture are added, too.
void add_config_keys(const Condition& condition, std::set<std::string>& keys);
void add_config_keys(const ArchValue& value, std::set<std::string>& keys);
// The key that a term of a condition asks for: "use_qk_norm" of "!use_qk_norm".
std::string key_of_term(const std::string& term);

// `where` names the place in messages ("archs/x.json: block.attention.scale").
ArchValue parse_arch_value(const Json& json, const std::string& where);
Condition parse_condition(const Json& json, const std::string& where);

}  // namespace bl
