#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// The types that a JSON schema allows a value to have, as a set of bits. An empty set says nothing.
class TypeSet {
 public:
  enum Bit : std::uint8_t {
    kString = 1,
    kInteger = 2,
    kNumber = 4,
    kBoolean = 8,
    kNull = 16,
    kObject = 32,
    kArray = 64,
  };

  TypeSet() = default;
  explicit TypeSet(unsigned bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  // The type with a name of JSON schema, such as "integer"; empty for other names.
  static TypeSet named(std::string_view name);

  bool has(Bit bit) const { return (bits_ & bit) != 0; }
  bool empty() const { return bits_ == 0; }
  // Whether values are strings whatever they look like: the schema says nothing, or string alone.
  bool only_string() const { return bits_ == 0 || bits_ == kString; }
  void add(TypeSet other) { bits_ |= other.bits_; }

 private:
  std::uint8_t bits_ = 0;
};

// A part of a tool's schema. It borrows from the ToolSet that made it.
class SchemaView {
 public:
  SchemaView() = default;
  SchemaView(const Json* schema, const Json* root) : schema_(schema), root_(root) {}

  // The types of values: from type, enum, const, properties, items, anyOf, oneOf, allOf, and
  // through references into the same document.
  TypeSet types() const;
  // The schema of a property of an object, or of the items of an array; an empty view where the
  // schema names none.
  SchemaView property(std::string_view name) const;
  SchemaView items() const;

 private:
  const Json* schema_ = nullptr;
  const Json* root_ = nullptr;
};

// The tools that a request offers, as far as reading their calls needs them.
class ToolSet {
 public:
  ToolSet();
  // `tools` is the list of a request: {"type": "function", "function": {"name", "parameters"}}, or
  // the inner object alone, whose schema may also be called "input_schema". Entries of other forms
  // are left out. Null is the empty set.
  explicit ToolSet(const Json& tools);
  ToolSet(ToolSet&& other) noexcept;
  ToolSet& operator=(ToolSet&& other) noexcept;
  ~ToolSet();

  bool empty() const { return tools_.empty(); }
  bool offers(std::string_view name) const { return tools_.find(name) != tools_.end(); }
  // Whether a call of the tool without arguments is complete: it is offered and requires none.
  bool needs_nothing(std::string_view name) const;
  // Whether the schema lets `arguments` end: none of its required parameters is missing. True for
  // tools that are not offered.
  bool has_required(std::string_view name, const std::map<std::string, int>& arguments) const;
  // The schema of a tool's parameters; an empty view for tools that are not offered.
  SchemaView parameters(std::string_view name) const;

 private:
  std::map<std::string, std::unique_ptr<Json>, std::less<>> tools_;
};

}  // namespace bl
