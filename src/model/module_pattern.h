#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// A regular expression over names of modules, as PEFT writes them (Python's re, whole name).
//
// Goals: time linear in the name, whatever the pattern; bounded size and depth. Non-goals:
// everything that such patterns do without: look-around, back-references, flags, lazy and
// possessive quantifiers, captures. Those are kUnsupported.
class ModulePattern {
 public:
  // `where` names the pattern in errors ("adapter_config.json: rank_pattern"). Throws kInvalidFile
  // for what is no pattern, kUnsupported for what this class cannot do.
  ModulePattern(std::string_view pattern, const std::string& where);

  bool matches(std::string_view name) const;

 private:
  enum class Kind : std::uint8_t { kSet, kSplit, kJump, kBegin, kEnd };
  struct Instruction {
    Kind kind;
    std::int32_t to = 0;     // kSet: number of the set; kJump, kSplit: where, from here
    std::int32_t other = 0;  // kSplit: the second place
  };
  using Code = std::vector<Instruction>;
  friend class PatternParser;

  void follow(std::size_t at, std::size_t position, std::size_t length,
              std::vector<std::size_t>& next, std::vector<std::size_t>& marks) const;

  std::vector<std::bitset<256>> sets_;
  Code code_;  // ends by running off its end
};

}  // namespace bl
