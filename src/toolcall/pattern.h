#pragma once
// The beginnings of calls and other markers of a format, as its document writes them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// What follows the beginning of a call.
enum class CallForm : std::uint8_t {
  kNone,        // the pattern is a marker, not a call
  kObject,      // {object}: JSON objects with name and arguments, alone or in a list
  kArguments,   // {arguments}: the arguments as JSON; the name came before
  kParameters,  // {parameters}: parameters one by one, with bare values
  kElements,    // {elements}: parameters as elements named after them, nested for lists and objects
  kPython,      // {python}: f(x=1), g(), alone or in a list
  kBraces,      // {braces}: {key:value} with bare keys
};

// A text with placeholders: {name}, {key}, {id}, {type} take what stands there; ~ is any white
// space or none; a form such as {object} must be the last.
class Pattern {
 public:
  struct Part {
    enum class Kind : std::uint8_t { kText, kSpace, kName, kKey, kId, kType } kind;
    std::string text;
  };

  // Throws kInvalidFile for an empty pattern or a form that is not the last.
  explicit Pattern(std::string_view source);

  const std::vector<Part>& parts() const { return parts_; }
  CallForm form() const { return form_; }
  // The byte with which the pattern begins; zero if it has no text of its own in front.
  char first() const;
  // The texts of the pattern up to its first placeholder.
  std::string opening() const;

 private:
  void add(Part::Kind kind, std::string_view text);

  std::vector<Part> parts_;
  CallForm form_ = CallForm::kNone;
};

// Compares a text with a pattern, byte by byte.
class PatternMatch {
 public:
  enum class Status : std::uint8_t {
    kMore,
    kMatched,  // the byte ends the pattern
    kForm,     // what comes before the form has matched; this byte is the form's first
    kFailed,
  };
  static constexpr std::size_t kMaxCapture = 256;

  explicit PatternMatch(const Pattern& pattern) : pattern_(&pattern) {}

  Status push(char byte);
  const Pattern& pattern() const { return *pattern_; }
  // What the placeholders took.
  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  const std::string& id() const { return id_; }
  const std::string& type() const { return type_; }

 private:
  Status next_part();
  bool takes(Pattern::Part::Kind kind, char byte) const;
  std::string& capture(Pattern::Part::Kind kind);

  const Pattern* pattern_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;  // bytes of the part that have come
  std::string name_, key_, id_, type_;
};

}  // namespace bl
