#include <gtest/gtest.h>

#include "base/error.h"
#include "sample/constraint_world.h"
#include "sample/regex_grammar.h"

namespace bl {
namespace {

using test::regex;

TEST(RegexFault, AnchorsStandWhereAlternativesBeginAndEnd) {
  for (const char* fine : {"", "^", "$", "^a$", "^a$|^b$", "(^a|b$)|(?:^c)", "[^$]", "\\^\\$",
                           "[a\\]^$]", "^(^a|b)(?:c|d$)$", "((^a))b", "a(b(?<x>c$)?)", "(a$)??",
                           "(?:^a)?b", "(^|a)b(c|$)", "a\\$$", "^\\^", "(?i)^a$", "\\Aa\\Z"}) {
    EXPECT_EQ(regex_fault(fine), "") << fine;
  }
  for (const char* wrong :
       {"a^", "$a", "a^b", "a$b", "(a^)", "a:^b", "^^", "$$",
        // With something before or behind the group; a group that comes again is behind itself.
        "a(^b)", "(a$)b", "(a$|b)c", "a|b(c|^d)", "[a](^b)", "\\((?:^b)", "a(b(?<x>c$)?)d", "(^a)*",
        "(b|(a$))+", "(?:^a){2}", "(a)(^b)", "(a$)(b)", "(a$)??b", "a\\Ab", "a\\Zb"}) {
    EXPECT_NE(regex_fault(wrong), "") << wrong;
  }
  EXPECT_EQ(regex_fault("ab(c$)d"),
            "has $ at offset 4, where it can never match: the whole text must match the "
            "expression");
  EXPECT_EQ(regex_fault("ab\\Ac"),
            "has \\A at offset 2, where it can never match: the whole text must match the "
            "expression");
}

TEST(RegexFault, EscapesAreCharacters) {
  for (const char* fine : {"\\ud83d\\ude00", "[\\uD83D\\uDE00-\\uD83D\\uDE02]", "\\u{1F600}",
                           "\\u{10ffff}", "\\ud7ff", "\\ue000", "\\\\ud800", "\\x41\\x7f"}) {
    EXPECT_EQ(regex_fault(fine), "") << fine;
  }
  for (const char* wrong : {"\\ud800", "[\\u{dfff}]", "\\ude00\\ud83d", "\\ud83dx\\ude00",
                            "\\u{110000}", "\\u{d83d}\\u{de00}", "\\ud83d\\ud83d\\ude00",
                            "[\\ud800-\\udfff]", "\\ud83d\\ude0", "\\u{}", "\\u12", "\\u", "\\"}) {
    EXPECT_NE(regex_fault(wrong), "") << wrong;
  }
  EXPECT_EQ(regex_fault("a\\ud83dx"),
            "has \\ud83d at offset 1, which is half of a surrogate pair without the other half");
}

// What cannot be kept is refused by name, with its place.
TEST(RegexFault, NamesWhatIsNotSupported) {
  struct Case {
    const char* text;
    const char* fault;
  };
  const std::vector<Case> cases{
      {"a(?=b)",
       "looks ahead, which is not supported where the whole text must match, at offset 1"},
      {"(?!a)b",
       "looks ahead, which is not supported where the whole text must match, at offset 0"},
      {"a(?<=b)c", "looks behind, which is not supported, at offset 1"},
      {"a(?<!b)c", "looks behind, which is not supported, at offset 1"},
      {"\\bfoo\\b", "has a word boundary, which is not supported, at offset 0"},
      {"(a)\\1", "refers back to a group, which is not supported, at offset 3"},
      {"\\p{L}", "has a Unicode property, which is not supported, at offset 0"},
      {"(ab", "has an unclosed ( at offset 0"},
      {"ab)", "has an unmatched ) at offset 2"},
      {"a[b", "has an unclosed [ at offset 1"},
      {"a{3,2}", "has a quantifier whose bounds are out of order at offset 1"},
      {"*a", "has a quantifier with nothing to repeat at offset 0"},
      {"{2}a", "has a quantifier with nothing to repeat at offset 0"},
      {"a|?", "has a quantifier with nothing to repeat at offset 2"},
      {"^+a$", "has a quantifier with nothing to repeat at offset 1"},
      {"^{2}a$", "has a quantifier with nothing to repeat at offset 1"},
      {"a$*", "has a quantifier with nothing to repeat at offset 2"},
      {"\\A?a", "has a quantifier with nothing to repeat at offset 2"},
      {"a++", "has a quantifier after a quantifier at offset 2"},
      {"a{2}{3}", "has a quantifier after a quantifier at offset 4"},
      {"[]a]",
       "has a class that begins with ], its end or a member (write [\\s\\S] or \\]), at offset 0"},
      {"a[^]b]",
       "has a class that begins with ], its end or a member (write [\\s\\S] or \\]), at offset 1"},
      {"a[]", "has a class that holds no character at offset 1"},
      {"a(?i:b)", "has a group or a flag of a kind that is not supported at offset 1"},
      {"(?m)^a", "has a group or a flag of a kind that is not supported at offset 0"},
  };
  for (const Case& c : cases) EXPECT_EQ(regex_fault(c.text), c.fault) << c.text;
}

TEST(Regex, TakesWhatPythonMatchesAsAWhole) {
  struct Case {
    const char* text;
    std::vector<const char*> right;
    std::vector<const char*> wrong;
  };
  const std::vector<Case> cases{
      {"(?P<year>\\d{4})-(?<month>\\d\\d)", {"2024-02"}, {"2024-2", "x"}},
      {"(?i)yes|No", {"yes", "YES", "nO"}, {"y", "yesno"}},
      {"a{,3}b", {"b", "aaab"}, {"aaaab"}},
      {"a+?b*?c??", {"a", "aab", "aabbc"}, {"b", ""}},
      {"(a|)b|", {"ab", "b", ""}, {"a"}},
      {"^\\w+@[\\w.-]+\\.com$", {"a_b@x-y.z.com"}, {"a@com", "a@b.com\n"}},
      {"\\s\\S[^\\s]", {" xy", "\txy"}, {"xxy", "  y"}},
      {".[.]\\.", {"x..", "\xc3\xa9.."}, {"\n..", "xx."}},
      {"(?:(?:ab){2,3}){2}", {"abababab", "abababababab"}, {"ab", "ababab"}},
      {"[^a-c]{1}\"\\\\", {"d\"\\"}, {"a\"\\", "d\""}},
      {"(x{0}y){2,}", {"yy", "yyy"}, {"y", "xyxy"}},
      {"{a}", {"{a}"}, {"a"}},
      {"[^]{2}b",
       {"\n\xc3\xa9"
        "b",
        "]]b"},
       {"xb", "xxxb"}},
  };
  test::World world(test::byte_level_tokenizer());
  for (const Case& c : cases) {
    for (const char* text : c.right)
      EXPECT_TRUE(world.takes(regex(c.text), text)) << c.text << " : " << text;
    for (const char* text : c.wrong)
      EXPECT_FALSE(world.takes(regex(c.text), text)) << c.text << " : " << text;
  }
}

}  // namespace
}  // namespace bl
