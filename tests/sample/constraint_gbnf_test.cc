#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "sample/constraint_world.h"
#include "support/data.h"

namespace bl {
namespace {

using test::grammar;

struct Case {
  const char* text;
  std::vector<const char*> right;
  std::vector<const char*> wrong;
};

void expect_taken(const std::vector<Case>& cases) {
  test::World world(test::byte_level_tokenizer());
  for (const Case& c : cases) {
    for (const char* text : c.right) {
      EXPECT_TRUE(world.takes(grammar(c.text), text)) << c.text << " : " << text;
    }
    for (const char* text : c.wrong) {
      EXPECT_FALSE(world.takes(grammar(c.text), text)) << c.text << " : " << text;
    }
  }
}

// https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md, and its parser.
TEST(Gbnf, EmptyAlternativesAndRules) {
  expect_taken({
      {R"(root ::= "a" ws "b"
ws ::= | " " | "\n" [ \t]{0,20})",
       {"ab", "a b", "a\nb", "a\n \tb"},
       {"a  b", "a\n\nb"}},
      {"root ::= \"a\" ( \"x\" | ) \"b\"", {"ab", "axb"}, {"axxb", "a"}},
      {"root ::= \"a\" (| \"x\" || \"y\") \"b\"", {"ab", "axb", "ayb"}, {"axyb"}},
      {"root ::= \"a\" nothing \"b\"\nnothing ::=\n", {"ab"}, {"a b"}},
      {"root ::= nothing \"b\"\nnothing ::= # only a comment\nlast ::=", {"b"}, {""}},
      {"root ::= \"a\" () \"b\" ( # nothing\n )", {"ab"}, {"a"}},
      {"root ::= (\"x\" |)* \"b\"", {"b", "xxxb"}, {"x"}},
      {"root ::=", {""}, {"a", " "}},
  });
}

TEST(Gbnf, Repetitions) {
  expect_taken({
      {"root ::= \"a\" \"c\"{,3} \"b\"", {"ab", "acb", "acccb"}, {"accccb"}},
      {"root ::= [0-9]{2}", {"12"}, {"1", "123"}},
      {"root ::= [0-9]{ 2 , 3 }", {"12", "123"}, {"1", "1234"}},
      {"root ::= (\"ab\" | \"c\"){2,}", {"abc", "ccab"}, {"ab", "a"}},
      {"root ::= \"a\"{0} \"b\"", {"b"}, {"ab"}},
      {"root ::= \"a\"{0,0} \"b\"", {"b"}, {"ab"}},
      {"root ::= \"ab\" * \"c\" +", {"c", "ababcc"}, {"ab", "abac"}},
      // A repetition of a repetition.
      {"root ::= \"a\"+? \"b\"", {"b", "ab", "aab"}, {"a"}},
      {"root ::= [a-c]{2}{2}", {"abca"}, {"ab", "abc"}},
  });
}

TEST(Gbnf, RulesOverSeveralLines) {
  expect_taken({
      {"# the whole\nroot ::= (\n    # a move\n    \"1. \" move\n\n    (\" \" move)+\n)\n"
       "move ::= # pawns alone\n  [a-h] |\n  \"O-O\" |\n  [0-9]\n",
       {"1. a b", "1. O-O 7 c"},
       {"1. a", "1. i a"}},
      {"root ::= \"a\"\r\n  | \"b\"\r\n# end", {"a", "b"}, {"\r", ""}},
      {"  root ::= a-1\n  a-1 ::= \"x\"", {"x"}, {"a-1"}},
      {"root ::= # why\n", {""}, {"w"}},
  });
}

TEST(Gbnf, NamesOfRules) {
  expect_taken({
      {"root ::= check-mate | dataType | UPPER-CASE | rule_123\ncheck-mate ::= \"1\"\n"
       "dataType ::= \"2\"\nUPPER-CASE ::= \"3\"\nrule_123 ::= \"4\"",
       {"1", "2", "3", "4"},
       {"5"}},
      // Words and digits that mean something else to the library's parser.
      {"root ::= true | false | Token | 1st | rule-0-1st\ntrue ::= \"t\"\nfalse ::= \"f\"\nToken "
       "::= \"T\"\n"
       "1st ::= \"1\"\nrule-0-1st ::= \"r\"",
       {"t", "f", "T", "1", "r"},
       {"true"}},
      {"root ::= a.b a. b\na ::= \"1\"\nb ::= \"2\"", {"1x21y2", "1.21.2"}, {"12", "1212"}},
      {"root ::= a.b\na.b ::= \"1\"", {"1"}, {"1x2"}},
  });
}

TEST(Gbnf, Characters) {
  expect_taken({
      {R"(root ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4}))",
       {"a", "\xc3\xa9", "\\n", "\\\"", "\\\\", "\\u00Af"},
       {"\"", "\\", "\\x", "\n", "\x7f"}},
      {R"(root ::= [-+*/] [+-] [a\-z] [\]\[] [[])", {"-+a][", "/--[["}, {"/-b]["}},
      {R"(root ::= "\x41\u00e9\U0001F600\t\"\[\]\\")",
       {"A\xc3\xa9\xf0\x9f\x98\x80\t\"[]\\"},
       {"A"}},
      {"root ::= [ぁ-ゟ]+ [^ぁ-ゟ]", {"ぁいx"}, {"xぁ", "ぁ"}},
      {"root ::= [^\\n]+ \"\\n\"", {"ab\xf0\x9f\x98\x80\n"}, {"\n", "ab"}},
      {"root ::= \"a\nb\" # a literal over two lines", {"a\nb"}, {"a b"}},
      {"root ::= \"#\" [#] \"|\" [|()] # no comments", {"##|)"}, {"#"}},
      {"root ::= . \"x\" .{2}", {"axbc", "\nx\xc3\xa9\n"}, {"ax", "axbcd"}},
      {"root ::= [^^] [\\^^]", {"a^"}, {"^^", "aa"}},
      {"root ::= [\\x2d-0]", {"-", ".", "0"}, {"1"}},
  });
}

// The message says what is wrong, and where.
TEST(Gbnf, FaultsHaveTheirPlace) {
  struct Fault {
    const char* text;
    const char* message;
  };
  const std::vector<Fault> faults{
      {"root ::= \"a\" x", "the name x, which no rule defines, at line 1, column 14"},
      {"a ::= \"a\"", "no rule named root"},
      {"root ::= \"a\nb", "a literal without its closing \" at line 1, column 10"},
      {"root ::= é\n", "`é` where"},
      {"root ::= \"é\" [a", "a character class without its closing ] at line 1, column 14"},
      {"root ::= (\"a\"\nb ::= \"c\"", "a ( without its ) at line 1, column 10"},
      {"root ::= \"a\")", "`)` outside of a rule at line 1, column 13"},
      {"\"a\" root ::= \"a\"", "`\"` outside of a rule at line 1, column 1"},
      {"root ::=\n  * \"a\"", "`*` with nothing before it to repeat at line 2, column 3"},
      {"root ::= \"a\"{x}", "a repetition that is not of the form"},
      {"root ::= \"a\"{3,2}", "a repetition whose upper bound is below"},
      {"root ::= \"a\"{9999999999}", "a repetition of more than 1000000 times"},
      {"root ::= <[1000]> \"a\"", "a token (<…>), which is not supported"},
      {"root ::= !<think>*", "a token (<…>), which is not supported"},
      {"root ::= 'a'", "literals stand in \""},
      {"root ::= \"\\q\"", "the unknown escape \\q at line 1, column 11"},
      {"root ::= \"a\"\nx ::= [\\d]", "\\d, which is not supported in grammars"},
      {"root ::= [z-a]", "a range whose end comes before its beginning at line 1, column 11"},
      {"root ::= []", "an empty character class"},
      {"root ::= \"\\ud800\"", "\\ud800, which is not a Unicode character, at line 1, column 11"},
      {"root ::= \"\\u12\"", "an escape with fewer than 4 hexadecimal digits at line 1, column 11"},
      {"root ::= \"a\"\nroot ::= \"b\"", "a second definition of root at line 2, column 1"},
      {"::= \"a\"", "`::=` without the name of a rule before it at line 1, column 1"},
  };
  test::World world(test::byte_level_tokenizer());
  for (const Fault& fault : faults) {
    try {
      world.compiler.compile(grammar(fault.text));
      ADD_FAILURE() << fault.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(fault.message), std::string::npos)
          << fault.text << " : " << error.what();
    }
  }
}

TEST(Gbnf, StandsInStructuralTags) {
  test::World world(test::byte_level_tokenizer());
  const ConstraintSpec tag{
      .kind = ConstraintSpec::Kind::kStructuralTag,
      .text = R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>","content":)"
              R"({"type":"grammar","grammar":"root ::= ( | \"x\") . \"y\"{,2}"},"end":"</a>"}})"};
  EXPECT_TRUE(world.takes(tag, "<a>xzyy</a>"));
  EXPECT_TRUE(world.takes(tag, "<a>z</a>"));
  EXPECT_FALSE(world.takes(tag, "<a>zyyy</a>"));
}

TEST(Gbnf, ReportedGrammars) {
  const auto folder = test::shared_dir() / "reports" / "gbnf-empty-alternative";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no folder " << folder;
  test::World world(test::byte_level_tokenizer());
  const auto takes = [&](const char* file, const char* text) {
    return world.takes(grammar(read_file(folder / file, 4096)), text);
  };
  EXPECT_TRUE(takes("empty.gbnf", "ab"));
  EXPECT_TRUE(takes("empty.gbnf", "a\n  b"));
  EXPECT_FALSE(takes("empty.gbnf", "a  b"));
  EXPECT_TRUE(takes("upto.gbnf", "ab"));
  EXPECT_TRUE(takes("upto.gbnf", "acccb"));
  EXPECT_FALSE(takes("upto.gbnf", "accccb"));
}

}  // namespace
}  // namespace bl
