#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace bl {

// A regular expression of a tokenizer file, compiled by PCRE2 with its JIT.
//
// Goals: it matches what Oniguruma (Ruby syntax, UTF-8) would match, for which such files are
// written; patterns and texts may be hostile, so compiled size, steps and memory are bounded.
// Non-goals: captures, replacement text.
class Regex {
 public:
  // `where` names the pattern in errors ("tokenizer.json: pre_tokenizer.pattern"). Throws
  // kInvalidFile if the pattern does not compile.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Walks over the non-overlapping matches in one text after another. It must not be shared between
  // threads, and the Regex must outlive it.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();

    // Starts with a new text. `subject` must be valid UTF-8 and stay alive while next() is called.
    void reset(std::string_view subject);
    // Finds the next match [begin, end), which may be empty; returns false if there is none. Throws
    // kLimit if the pattern needs more steps than any sane one would.
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

// Translates a pattern to PCRE2's syntax. Throws kInvalidFile, naming `where`.
std::string translate_oniguruma(std::string_view pattern, std::string_view where);

}  // namespace bl
