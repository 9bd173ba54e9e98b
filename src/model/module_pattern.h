#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// A regular expression over module names as PEFT writes it (Python's re, matched against the whole
// name).
//
// Goals: time linear in the name, whatever the pattern; bounded size and depth. Non-goals: what
// such patterns never use, namely look-around, back-references, flags, lazy and possessive
// quantifiers, and captures. These throw kUnsupported.
class ModulePattern {
 public:
  // `where` names the pattern in errors ("adapter_config.json: rank_pattern"). Throws kInvalidFile
  // if it is malformed, kUnsupported for features that this class does not have.
  ModulePattern(std::string_view pattern, const std::string& where);

  bool matches(std::string_view name) const;

 private:
  enum class Kind : std::uint8_t { kSet, kSplit, kJump, kBegin, kEnd };
  struct Instruction {
    Kind kind;
    std::int32_t to = 0;     // kSet: index of the set; kJump, kSplit: relative target
    std::int32_t other = 0;  // kSplit: the second relative target
  };
  using Code = std::vector<Instruction>;
  friend class PatternParser;

  void follow(std::size_t at, std::size_t position, std::size_t length,
              std::vector<std::size_t>& next, std::vector<std::size_t>& marks) const;

  std::vector<std::bitset<256>> sets_;
  Code code_;  // matches when execution reaches its end
};

}  // namespace bl
