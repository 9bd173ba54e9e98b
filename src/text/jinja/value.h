#pragma once
// The values that a template computes with: Python's values, as far as templates can see them.

#include <cstdint>
#include <span>
#include <string_view>

namespace bl::jinja {

class BigInt;
struct Builtin;
struct MacroStatement;
struct Scope;
struct Dict;
struct Range;
struct Iterator;
struct DictView;
struct Namespace;
struct Macro;
struct Loop;
struct Function;
struct Cycler;
struct Joiner;
struct UndefinedInfo;

enum class Kind : std::uint8_t {
  kMissing,  // no value: an argument not given, a name not set; templates never see it
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // only integers outside 64 bits
  kFloat,
  kString,
  kTuple,
  kList,
  kDict,
  kRange,
  kIterator,  // the result of Python's lazy filters; can be walked once
  kDictView,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,
  kCycler,
  kJoiner,
  kBlocks,  // the variable `self`
};

// A value of 16 bytes that is copied freely. The memory that it points to lives in the arena of the
// rendering or of the parsed template, or in the caller's variables. Strings, tuples, lists and
// dicts never change once made (the sandbox refuses every method that would change them), so slices
// share memory.
struct Value {
  Kind kind = Kind::kMissing;
  std::uint8_t flags = 0;
  std::uint16_t depth = 0;  // levels of containers inside; keeps every recursion bounded
  std::uint32_t size = 0;   // bytes of a string; items of a tuple or list
  union {
    std::int64_t integer = 0;  // also for kBool
    double number;
    const char* text;    // UTF-8, without a terminator
    const Value* items;  // [size]
    const BigInt* big;
    const Dict* dict;
    const Range* range;
    Iterator* iterator;
    const DictView* view;
    Namespace* space;
    const Macro* macro;
    Loop* loop;
    const Function* function;
    Cycler* cycler;
    Joiner* joiner;
    const UndefinedInfo* undefined;
  };

  static constexpr std::uint8_t kMarkup = 1;    // a string that counts as escaped HTML
  static constexpr std::uint8_t kGrowable = 2;  // a string that Runtime::concat may extend
  static constexpr std::uint8_t kGroup = 4;     // a tuple made by groupby, with .grouper and .list

  static Value none() { return with(Kind::kNone, 0); }
  static Value boolean(bool b) { return with(Kind::kBool, b ? 1 : 0); }
  static Value of_int(std::int64_t i) { return with(Kind::kInt, i); }
  static Value of_float(double d) {
    Value v = with(Kind::kFloat, 0);
    v.number = d;
    return v;
  }
  // Borrows `s`, which must outlive the value.
  static Value string(std::string_view s) {
    Value v = with(Kind::kString, 0);
    v.size = static_cast<std::uint32_t>(s.size());
    v.text = s.data();
    return v;
  }

  bool is(Kind k) const { return kind == k; }
  bool missing() const { return kind == Kind::kMissing; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_markup() const { return kind == Kind::kString && (flags & kMarkup) != 0; }
  bool is_sequence() const { return kind == Kind::kTuple || kind == Kind::kList; }
  // An int or bool that fits 64 bits.
  bool is_int64() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_integer() const { return is_int64() || kind == Kind::kBigInt; }
  bool is_number() const { return is_integer() || kind == Kind::kFloat; }
  std::string_view str() const { return {text, size}; }
  std::span<const Value> list() const { return {items, size}; }
  Value as_markup(bool markup) const {
    Value v = *this;
    v.flags = markup ? kMarkup : 0;
    return v;
  }

 private:
  static Value with(Kind kind, std::int64_t integer) {
    Value v;
    v.kind = kind;
    v.integer = integer;
    return v;
  }
};
static_assert(sizeof(Value) == 16);

struct DictEntry {
  Value key;
  Value value;
};

// A dict in insertion order. `index` is null for small dicts, which are searched in order.
struct Dict {
  const DictEntry* entries = nullptr;
  std::uint32_t size = 0;
  std::uint32_t mask = 0;
  const std::uint32_t* index = nullptr;  // [mask + 1] entry number + 1; 0 is free; open addressing

  std::span<const DictEntry> list() const { return {entries, size}; }
};

struct Range {
  std::int64_t start = 0;
  std::int64_t stop = 0;  // as given; the items end at or before it
  std::int64_t step = 1;
  std::int64_t size = 0;

  Value at(std::int64_t i) const { return Value::of_int(start + i * step); }
};

struct Iterator {
  std::span<const Value> items;
  std::size_t position = 0;
  const char* type = "generator";
};

struct DictView {
  enum class Part : std::uint8_t { kKeys, kValues, kItems };
  Value dict;
  Part part = Part::kKeys;
};

struct Function {
  const Builtin* builtin = nullptr;
  Value self;  // kMissing for a global function
};

struct Macro {
  const MacroStatement* definition = nullptr;
  Scope* scope = nullptr;  // the scope in which it was defined
};

struct Cycler {
  std::span<const Value> items;
  std::size_t position = 0;
};

// Returns nothing at its first call, and the separator from then on.
struct Joiner {
  Value separator;
  bool used = false;
};

// The reason why a value is undefined, for the message when it is used.
struct UndefinedInfo {
  std::string_view hint;    // if not empty, the whole message
  std::string_view object;  // type of the object that was asked; empty for a variable
  Value name;
};

struct Keyword {
  std::string_view name;
  Value value;
};

// The evaluated arguments of a call.
struct CallArgs {
  std::span<const Value> positional;
  std::span<const Keyword> keywords;
};

}  // namespace bl::jinja
