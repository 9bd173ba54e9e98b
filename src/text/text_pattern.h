#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/component_reader.h"
#include "text/regex.h"

namespace bl {

// The pattern of a Split or a Replace: a plain string or a regular expression. An empty string
// matches between any two characters and at both ends.
class TextPattern {
 public:
  // Reads {"String": …} or {"Regex": …} in field `key`. Throws kInvalidFile.
  TextPattern(const ComponentReader& reader, const char* key);
  explicit TextPattern(std::string plain);
  TextPattern(std::string_view regex, std::string where) : regex_(std::in_place, regex, where) {}

  bool is_plain() const { return !regex_.has_value(); }
  const std::string& plain() const { return plain_; }

  // Walks over the matches in one text after another, as Regex::Matcher does. Each thread needs a
  // walker of its own.
  class Walker {
   public:
    explicit Walker(const TextPattern& pattern);
    void reset(std::string_view text);
    bool next(std::size_t& begin, std::size_t& end);

   private:
    const TextPattern& pattern_;
    std::optional<Regex::Matcher> matcher_;
    std::string_view text_;
    std::size_t from_ = 0;
  };

  // The text with every match replaced by `content`.
  std::string replace_all(std::string_view text, std::string_view content) const;

 private:
  std::string plain_;
  std::optional<Regex> regex_;
};

}  // namespace bl
