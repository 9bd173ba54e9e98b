#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace bl {

// Reads the fields of one JSON object of a tokenizer file. Every getter throws kInvalidFile with a
// message that names the file, the path of the field, what was found and what would be right. The
// getters with `otherwise` return it if the field is missing or null.
class ComponentReader {
 public:
  // `where` is "FILE: path.of.this.object". The JSON must outlive the reader.
  ComponentReader(const Json& json, std::string where);

  std::string type() const { return string("type"); }
  bool has(const char* key) const;  // whether the field is present and not null

  std::string string(const char* key) const;
  std::string string_or(const char* key, std::string otherwise) const;
  bool boolean_or(const char* key, bool otherwise) const;
  std::int64_t integer(const char* key) const;
  // A string of exactly one character.
  char32_t character(const char* key) const;

  ComponentReader child(const char* key) const;
  std::vector<ComponentReader> children(const char* key) const;
  const Json& json() const { return json_; }
  const Json& at(const char* key) const;
  std::string where(const char* key) const;
  const std::string& where() const { return where_; }

  // Throws if components that lie `depth` deep, in the list `key`, are nested too deeply.
  void check_nesting(const char* key, int depth) const;
  // Throws kInvalidFile: field `key` is missing, or is not what was `expected`.
  [[noreturn]] void wrong(const char* key, std::string_view expected) const;

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace bl
