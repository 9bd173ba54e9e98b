#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace bl {

// A regular expression of a tokenizer file, compiled by PCRE2 with its JIT.
//
// Goals: matches what Oniguruma (Ruby syntax, UTF-8), which such files are written for, would
// match; patterns and texts may be hostile: compiled size, steps and memory are bounded. Non-goals:
// captures, replacement text.
class Regex {
 public:
  // `where` names the pattern in errors ("tokenizer.json: pre_tokenizer.pattern"). Throws
  // kInvalidFile for a pattern that does not compile.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Walks over the non-overlapping matches of one text after another. Not shared between threads;
  // the Regex must outlive it.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();

    // `subject` is valid UTF-8 and stays alive while next() is called.
    void reset(std::string_view subject);
    // The next match [begin, end), which may be empty. Throws kLimit when the pattern needs more
    // steps than any sane one would.
    bool next(std::size_t& begin, std::size_t& end);

   private:
    bool search();

    struct State;
    const Regex& regex_;
    std::unique_ptr<State> state_;
    std::string_view subject_;
    std::size_t from_ = 0;
    std::size_t last_end_ = 0;
    bool had_match_ = false;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string where_;
};

// The same pattern in PCRE2's syntax. Throws kInvalidFile, naming `where`.
std::string translate_oniguruma(std::string_view pattern, std::string_view where);

}  // namespace bl
