#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/schema_logic.h"

namespace bl {

using Claims = std::vector<Claim>;

// The strings that a value may be: texts of an automaton, with their number of code points bounded.
struct StringForm {
  Automaton texts{};
  std::size_t fewest = 0;
  std::optional<std::size_t> most{};
  bool any_escape = false;  // every character may be written as an escape

  bool empty() const { return texts.empty() || (most && *most < fewest); }
};

// One way in which a value may be an array: everything in it must hold.
struct ArrayForm {
  std::vector<const OrderedJson*> lists{};          // SchemaLogic::items() of these
  std::vector<std::pair<std::size_t, Claim>> at{};  // these items are there
  Claims all{};
  struct Contained {
    Claim claim;
    std::size_t fewest = 0;
    std::optional<std::size_t> most{};
  };
  std::vector<Contained> contains{};
  std::size_t fewest = 0;
  std::optional<std::size_t> most{};
  const OrderedJson* unique = nullptr;   // the schema that wants all items to differ
  const OrderedJson* unknown = nullptr;  // a schema of which something cannot be said

  // How many items are described one by one.
  std::size_t first_count(SchemaLogic& logic) const;
  Claims item(SchemaLogic& logic, std::size_t index) const;
  // Whether items beyond the described ones stay out.
  bool closed(SchemaLogic& logic) const;
};

// One way in which a value may be an object: everything in it must hold.
struct ObjectForm {
  std::vector<const OrderedJson*> lists{};  // SchemaLogic::members() of these
  std::vector<std::string> required{};
  std::vector<std::string> absent{};
  std::vector<std::pair<std::string, Claim>> has{};
  Claims names{};
  std::vector<std::pair<const OrderedJson*, Claim>> unevaluated{};
  std::size_t fewest = 0;
  std::optional<std::size_t> most{};
  const OrderedJson* unknown = nullptr;  // a schema of which something cannot be said

  bool requires_name(const std::string& name) const;
  bool excludes_name(const std::string& name) const;
};

// The values that satisfy a set of claims, for every set that a schema leads to. Each set has a
// number. What is known about a set is worked out when it is first asked for.
class ValueTable {
 public:
  explicit ValueTable(SchemaLogic& logic) : logic_(logic) {}

  // Drops claims that say nothing and replaces references, so that equal sets get one number.
  int number_of(const Claims& claims);
  const Claims& claims(int value) const { return values_[at(value)].claims; }
  bool allows_anything(int value) const { return values_[at(value)].claims.empty(); }

  // False only if it is certain that no value satisfies the claims.
  bool possible(int value);
  // Whether null, false or true satisfies them.
  bool allows(int value, ValueKind literal);
  const StringForm& strings(int value);
  const Automaton& numbers(int value);  // over bytes
  const std::vector<ArrayForm>& arrays(int value);
  const std::vector<ObjectForm>& objects(int value);
  // All values as JSON texts if there are at most `most` and no array or object among them.
  std::optional<std::vector<std::string>> scalars(int value, std::size_t most);

  // What an object of this form lets the member `name` be.
  int member(const ObjectForm& form, const std::string& name);
  // What it lets a member be that it does not describe by name: one whose name matches the patterns
  // for which `matches` says so.
  int other_member(const ObjectForm& form, const std::function<bool(const Automaton*)>& matches);
  // Whether the names of all members may be `name`.
  bool allows_name(const ObjectForm& form, const std::string& name);
  bool possible(const ObjectForm& form);
  bool possible(const ArrayForm& form);

  SchemaLogic& logic() { return logic_; }

 private:
  struct Value {
    Claims claims;
    std::optional<bool> possible{};
    bool open = false;  // being worked out
    std::unique_ptr<StringForm> strings{};
    std::unique_ptr<Automaton> numbers{};
    std::unique_ptr<std::vector<ArrayForm>> arrays{};
    std::unique_ptr<std::vector<ObjectForm>> objects{};
  };
  static std::size_t at(int value) { return static_cast<std::size_t>(value); }
  Expressions::Id expression(int value, ValueKind kind);
  // The claim in another form: nothing if it always holds.
  std::optional<Claim> simplified(Claim claim);
  std::string place(int value);
  static void build_lengths_in(StringForm& form, const std::string& what);
  bool find_possible(int value);
  int member_of(const ObjectForm& form, const std::string* name,
                const std::function<bool(const Automaton*)>& matches);

  SchemaLogic& logic_;
  std::map<Claims, int> numbers_;
  std::vector<Value> values_;
  int depth_ = 0;
};

// The claims as alternatives, of which every one is a set of atoms that hold or do not. Throws
// kLimit if there are too many. `is_possible` drops alternatives; `negation` says what it means
// that an atom does not hold.
struct SignedAtom {
  int atom;
  bool holds;

  auto operator<=>(const SignedAtom&) const = default;
};
using Alternative = std::vector<SignedAtom>;
struct AlternativeRules {
  std::function<Expressions::Id(int)> negation;
  std::function<bool(const Alternative&)> is_possible;
};
std::vector<Alternative> alternatives(Expressions& expressions, Expressions::Id id,
                                      const AlternativeRules& rules);

}  // namespace bl
