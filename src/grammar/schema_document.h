#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"

namespace bl {

// The drafts of JSON Schema, in order. kUnknown is a schema that names none: every keyword counts.
enum class SchemaDraft { kUnknown, k4, k6, k7, k2019, k2020 };

// A JSON schema with the places of its parts and what its references lead to.
class SchemaDocument {
 public:
  explicit SchemaDocument(const OrderedJson& root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  const OrderedJson& root() const { return root_; }
  // Whether the draft that the schema names has the keywords of `first` to `last`.
  bool since(SchemaDraft first) const { return draft_ == SchemaDraft::kUnknown || draft_ >= first; }
  bool until(SchemaDraft last) const { return draft_ == SchemaDraft::kUnknown || draft_ <= last; }
  // Whether unevaluatedProperties stands anywhere, so that it matters which schemas have held.
  bool has_unevaluated() const { return unevaluated_; }
  // Whether the draft ignores everything beside `$ref`.
  bool reference_stands_alone() const {
    return draft_ != SchemaDraft::kUnknown && draft_ <= SchemaDraft::k7;
  }

  // The member `key` of a schema as a schema, whose place is remembered, or null if there is none.
  // Throws kInvalidArgument if it is neither an object nor a boolean.
  const OrderedJson* part(const OrderedJson& schema, const char* key);
  // The schema `value`, which stands in `schema` at the relative pointer `path`.
  const OrderedJson* part_at(const OrderedJson& schema, const OrderedJson& value,
                             const std::string& path);
  // What the reference `reference` within `schema` leads to. Throws kInvalidArgument.
  const OrderedJson* target(const OrderedJson& schema, const std::string& reference);
  // Keeps a schema that stands for a part of `schema`.
  const OrderedJson* keep(const OrderedJson& schema, OrderedJson made);

  // The place of a schema as a JSON pointer (#/properties/a).
  const std::string& place(const OrderedJson& schema) const;
  // Throws kInvalidArgument: "the JSON schema at PLACE " and the phrase.
  template <class... Args>
  [[noreturn]] void refuse(const OrderedJson& schema, fmt::format_string<Args...> format,
                           Args&&... args) const {
    refuse_phrase(schema, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Home {
    std::string place;
    const OrderedJson* resource;  // the schema that references without an address begin at
  };

  [[noreturn]] void refuse_phrase(const OrderedJson& schema, const std::string& phrase) const;
  void find_identifiers(const OrderedJson& at, const OrderedJson& resource, std::string address);
  const OrderedJson* follow_pointer(const OrderedJson& from, const OrderedJson& resource,
                                    const std::string& reference, std::string_view pointer);

  const OrderedJson& root_;
  SchemaDraft draft_ = SchemaDraft::kUnknown;
  bool unevaluated_ = false;
  std::unordered_map<const OrderedJson*, Home> homes_;
  std::unordered_map<std::string, const OrderedJson*> by_address_;
  std::unordered_map<const OrderedJson*, std::string> addresses_;  // of resources
  std::deque<OrderedJson> made_;
};

}  // namespace bl
