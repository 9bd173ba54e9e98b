#pragma once
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/decimal.h"
#include "grammar/expression.h"
#include "grammar/schema_document.h"

namespace bl {

enum class ValueKind { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
inline constexpr int kValueKinds = 7;

// A keyword of our own: the items of a list that `const` or `enum` gives, in any draft.
inline constexpr const char* kItemsOfValue = "\x01items";

// That a value satisfies a schema, or that it does not.
struct Claim {
  const OrderedJson* schema;
  bool holds = true;

  auto operator<=>(const Claim&) const = default;
};

struct NumberAtom {
  enum class What { kWhole, kAtLeast, kAtMost, kAbove, kBelow, kEquals, kMultiple };
  What what;
  Decimal value{};
};

struct StringAtom {
  std::function<Automaton()> make{};  // the texts for which it holds, over code points
  std::shared_ptr<const Automaton> texts{};
  // For an atom about the length: the fewest and the most code points.
  std::optional<std::pair<std::size_t, std::optional<std::size_t>>> bound{};
};

struct ArrayAtom {
  enum class What {
    kItems,     // what `schema` says about items
    kFewest,    // at least `count` items
    kUnique,    // no two items are equal
    kContains,  // at least `count` items satisfy `claim`
    kAll,       // all items satisfy `claim`
    kAt,        // there is an item number `count`, and it satisfies `claim`
    kUnknown,   // cannot be said here: `count` names the keyword in kNames
  };
  What what;
  const OrderedJson* schema = nullptr;
  std::size_t count = 0;
  Claim claim{};
};

struct ObjectAtom {
  enum class What {
    kMembers,      // what `schema` says about members
    kRequired,     // there is a member `name`
    kFewest,       // at least `count` members
    kNames,        // all names satisfy `claim`
    kHas,          // there is a member `name`, and it satisfies `claim`
    kUnevaluated,  // members that nothing within `schema` describes satisfy `claim`
    kUnknown,      // cannot be said here
  };
  What what;
  const OrderedJson* schema = nullptr;
  std::string name{};
  std::size_t count = 0;
  Claim claim{};
};

// The items that a schema describes.
struct ItemList {
  std::vector<const OrderedJson*> first{};
  const OrderedJson* rest = nullptr;  // null: it says nothing about them
};

// The members that a schema describes.
struct MemberList {
  std::vector<std::pair<std::string, const OrderedJson*>> named{};
  std::vector<std::pair<std::shared_ptr<const Automaton>, const OrderedJson*>> patterns{};
  const OrderedJson* others = nullptr;  // null: it says nothing about them
  bool closes = false;  // no word on others beside a description of some: others stay out
  bool opens = false;   // others are asked for

  const OrderedJson* find(const std::string& name) const;
};

// Reads schemas as propositions about a value of one kind. For numbers, strings, arrays and objects
// their atoms are in the tables; for the three other kinds every proposition is true or false.
class SchemaLogic {
 public:
  using Id = Expressions::Id;

  SchemaLogic(SchemaDocument& document, bool tool_parameters)
      : document_(document), tool_parameters_(tool_parameters) {}

  Id expression(const OrderedJson& schema, ValueKind kind);
  Id expression(const Claim& claim, ValueKind kind);
  // What an atom that does not hold means, as a proposition of atoms that hold.
  Id negation_of_array_atom(int number);
  Id negation_of_object_atom(int number);

  const ItemList& items(const OrderedJson& schema);
  const MemberList& members(const OrderedJson& schema);
  // The schemas that say something about the same value as `schema`, itself among them.
  std::set<const OrderedJson*> in_place(const OrderedJson& schema);
  std::shared_ptr<const Automaton> pattern(const OrderedJson& schema, const std::string& regex);

  SchemaDocument& document() { return document_; }
  Expressions& expressions() { return expressions_; }
  const NumberAtom& number_atom(int i) const { return numbers_[static_cast<std::size_t>(i)]; }
  // The texts for which a string atom holds.
  const Automaton& texts(int string_atom);
  const StringAtom& string_atom(int i) const { return strings_[static_cast<std::size_t>(i)]; }
  const ArrayAtom& array_atom(int i) const { return arrays_[static_cast<std::size_t>(i)]; }
  const ObjectAtom& object_atom(int i) const { return objects_[static_cast<std::size_t>(i)]; }

 private:
  Id read(const OrderedJson& schema, ValueKind kind);
  Id read_keyword(const OrderedJson& schema, const std::string& key, ValueKind kind);
  Id read_combination(const OrderedJson& schema, const std::string& key, ValueKind kind);
  Id read_number(const OrderedJson& schema, const std::string& key);
  Id read_string(const OrderedJson& schema, const std::string& key);
  Id read_array(const OrderedJson& schema, const std::string& key);
  Id read_object(const OrderedJson& schema, const std::string& key);
  Id read_dependencies(const OrderedJson& schema, const std::string& key);
  Id read_contains(const OrderedJson& schema);
  Id read_required(const OrderedJson& schema, const OrderedJson& names);
  Id unevaluated_items(const OrderedJson& schema);
  Id type_allows(const OrderedJson& schema, ValueKind kind);
  Id equals_one_of(const OrderedJson& schema, const OrderedJson& values, ValueKind kind);
  Id equals(const OrderedJson& schema, const OrderedJson& value, ValueKind kind);
  const OrderedJson* schema_of_value(const OrderedJson& schema, const OrderedJson& value);
  std::size_t count(const OrderedJson& schema, const std::string& key) const;
  const OrderedJson& list(const OrderedJson& schema, const std::string& key) const;
  const OrderedJson& object(const OrderedJson& schema, const std::string& key) const;

  Id number(NumberAtom atom);
  Id string(const std::string& name, StringAtom atom);
  Id array(ArrayAtom atom);
  Id object_is(ObjectAtom atom);

  SchemaDocument& document_;
  bool tool_parameters_;
  Expressions expressions_;
  std::map<std::pair<const OrderedJson*, ValueKind>, Id> known_;
  std::set<std::pair<const OrderedJson*, ValueKind>> open_;
  std::map<const OrderedJson*, ItemList> items_;
  std::map<const OrderedJson*, MemberList> members_;
  std::map<std::string, std::shared_ptr<const Automaton>> patterns_;
  std::vector<NumberAtom> numbers_;
  std::map<std::string, Id> string_ids_;
  std::vector<StringAtom> strings_;
  std::vector<ArrayAtom> arrays_;
  std::vector<ObjectAtom> objects_;
};

}  // namespace bl
