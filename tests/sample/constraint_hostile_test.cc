// Constraints that were made to break something (docs/robustness.md): each is an error of one line,
// within the limits of time and memory, or a grammar that can be walked.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

#include "base/error.h"
#include "sample/constraint_compiler.h"
#include "sample/grammar_tokenizers.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;

std::string times(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string rule_chain(int rules) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < rules; ++i) text += fmt::format("r{} ::= r{}\n", i, i + 1);
  return text + fmt::format("r{} ::= \"a\"\n", rules);
}

std::string reference_chain(int links) {
  std::string text = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < links; ++i)
    text += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
  return text + fmt::format(R"("d{}":{{"type":"null"}}}}}})", links);
}

std::string doubling_schema(int levels) {
  std::string text = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < levels; ++i) {
    text += fmt::format(
        R"("d{0}":{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d{1}"}},"b":{{"$ref":"#/$defs/d{1}"}}}}}},)",
        i, i + 1);
  }
  return text + fmt::format(R"("d{}":{{"type":"null"}}}}}})", levels);
}

std::string wide_schema(int properties) {
  std::string text = R"({"type":"object","properties":{)";
  for (int i = 0; i < properties; ++i) {
    text += fmt::format(R"({}"p{}":{{"type":"integer"}})", i > 0 ? "," : "", i);
  }
  return text + "}}";
}

enum class Want { kError, kEither };

struct Hostile {
  const char* name;
  Kind kind;
  std::string text;
  Want want = Want::kError;
};

std::vector<Hostile> hostile() {
  using enum ConstraintSpec::Kind;
  return {
      {"empty", kGrammar, ""},
      {"60,000 open brackets", kGrammar, "root ::= " + times("(", 60000)},
      {"60,000 nested brackets", kGrammar,
       "root ::= " + times("(", 60000) + "\"a\"" + times(")", 60000)},
      {"a chain of 5,000 rules", kGrammar, rule_chain(5000), Want::kEither},
      {"nested repetition", kGrammar, "root ::= (\"a\"* )*", Want::kEither},
      {"nested repetition of a rule", kGrammar, "root ::= a*\na ::= b*\nb ::= \"\" | \"x\"*",
       Want::kEither},
      {"left recursion without an end", kGrammar, "root ::= root"},
      {"left recursion", kGrammar, "root ::= root \"a\" | \"a\"", Want::kEither},
      {"no root", kGrammar, "start ::= \"a\""},
      {"a rule that is not there", kGrammar, "root ::= other"},
      {"a rule twice", kGrammar, "root ::= \"a\"\nroot ::= \"b\""},
      {"an open text", kGrammar, "root ::= \"a"},
      {"an open class", kGrammar, "root ::= [a-"},
      {"a class backwards", kGrammar, "root ::= [z-a]"},
      {"an open escape", kGrammar, "root ::= \"\\x\""},
      {"no right side", kGrammar, "root ::=", Want::kEither},
      {"only a bar", kGrammar, "root ::= |", Want::kEither},
      {"repetition without an end", kGrammar, "root ::= \"a\"{1,100000000}", Want::kEither},
      {"repetition of repetition", kGrammar,
       "root ::= ((((\"a\"{1,999}){1,999}){1,999}){1,999}){1,999}", Want::kEither},
      {"repetition backwards", kGrammar, "root ::= \"a\"{5,2}"},
      {"repetition too large for a number", kGrammar, "root ::= \"a\"{99999999999999999999}"},
      {"bytes that are no text", kGrammar, "root ::= \"\xff\xfe\""},
      {"a zero byte", kGrammar, std::string("root ::= \"a\0b\"", 14)},
      {"words", kGrammar, "please write a poem"},
      {"an include", kGrammar, "%import common.INT\nstart: INT \"", Want::kError},
      {"a lark rule that is not there", kGrammar, "start: other"},
      {"a lark recursion", kGrammar, "start: start", Want::kEither},
      {"a condition in a lark grammar's schema", kGrammar,
       R"(start: "x" %json {"type":"string","not":{"const":"a"}})", Want::kEither},
      {"a lark grammar's schema that is one in part", kGrammar,
       R"(start: %json {"allOf":[{"type":"string"},{"maxLength":3}]})", Want::kEither},
      {"a lark grammar in another, with a schema", kGrammar,
       R"(start: %lark { start: %json {"type":"array","items":{"type":"integer"},"uniqueItems":true} })"},

      {"an open bracket", kRegex, "(("},
      {"an open class", kRegex, "[a"},
      {"two stars", kRegex, "foo**", Want::kEither},
      {"nothing to repeat", kRegex, "*a"},
      {"an anchor repeated", kRegex, "^+[a-z]$"},
      {"an anchor counted", kRegex, "^{2}times$"},
      {"look behind", kRegex, "(?<=x)a"},
      {"look ahead", kRegex, "(?=x)a"},
      {"an edge of a word", kRegex, "\\bword\\b"},
      {"an anchor in the middle", kRegex, "a$b"},
      {"a back reference", kRegex, "(a)\\1"},
      {"brackets of 100,000", kRegex, times("(", 100000) + "a" + times(")", 100000)},
      {"repetition of repetition", kRegex,
       "((((((a{1,200}){1,200}){1,200}){1,200}){1,200}){1,200})", Want::kEither},
      {"a large repetition", kRegex, "[a-z]{1,100000}", Want::kEither},
      {"a large repetition of texts", kRegex, "(abc|def|[0-9]{1,3}){1000,100000}", Want::kEither},
      {"alternatives of 20,000", kRegex, times("ab|", 20000) + "c", Want::kEither},
      {"states that double", kRegex, "(a|b)*a(a|b){25}", Want::kEither},
      {"stars in stars", kRegex, "((a*)*)*b", Want::kEither},
      {"a class of everything", kRegex, "[^]", Want::kEither},
      {"an escape at the end", kRegex, "a\\"},
      {"an unknown property", kRegex, "\\p{Klingon}"},

      {"no JSON", kJsonSchema, "{"},
      {"a number", kJsonSchema, "12"},
      {"a list", kJsonSchema, "[]"},
      {"never", kJsonSchema, "false"},
      {"a type that is none", kJsonSchema, R"({"type":"str"})"},
      {"a type of a number", kJsonSchema, R"({"type":5})"},
      {"a pattern that is none", kJsonSchema, R"({"type":"string","pattern":"(("})"},
      {"a pattern that is a number", kJsonSchema, R"({"type":"string","pattern":5})"},
      {"look behind in a pattern", kJsonSchema, R"({"type":"string","pattern":"(?<=x)a"})"},
      {"a reference to itself", kJsonSchema, R"({"$ref":"#"})"},
      {"references in a circle", kJsonSchema,
       R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"},
      {"a reference to nothing", kJsonSchema, R"({"$ref":"#/$defs/none"})"},
      {"a reference to elsewhere", kJsonSchema, R"({"$ref":"http://example.com/schema"})"},
      {"a reference to elsewhere in what is referred to", kJsonSchema,
       R"({"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"b.json"}}})"},
      {"a part that is not read", kJsonSchema, R"({"type":"integer","not":{"const":3}})",
       Want::kEither},
      {"a condition", kJsonSchema,
       R"({"type":"object","if":{"required":["a"]},"then":{"required":["b"]}})", Want::kEither},
      {"items that differ", kJsonSchema,
       R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})"},
      {"a bound beside a choice", kJsonSchema,
       R"({"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]})", Want::kEither},
      {"a bound beside a reference", kJsonSchema,
       R"({"type":"array","items":{"$ref":"#/$defs/a","maxLength":3},"$defs":{"a":{"type":"string"}}})",
       Want::kEither},
      {"a bound of no type", kJsonSchema, R"({"anyOf":[{"required":["a"]},{"type":"null"}]})",
       Want::kEither},
      {"a required property that is not described", kJsonSchema,
       R"({"type":"object","properties":{"a":{}},"required":["a","b"]})", Want::kEither},
      {"multiples of a fraction", kJsonSchema, R"({"type":"number","multipleOf":0.5})",
       Want::kEither},
      {"a pattern and a length", kJsonSchema,
       R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})", Want::kEither},
      {"an anchor in the middle of a pattern", kJsonSchema, R"({"type":"string","pattern":"a^b"})"},
      {"a chain of 2,000 references", kJsonSchema, reference_chain(2000), Want::kEither},
      {"references that double", kJsonSchema, doubling_schema(60), Want::kEither},
      {"nested 100,000 deep", kJsonSchema, times(R"({"items":)", 20000) + "{}" + times("}", 20000)},
      {"nested 100 deep", kJsonSchema,
       times(R"({"type":"array","items":)", 100) + "{}" + times("}", 100), Want::kEither},
      {"anyOf in anyOf", kJsonSchema,
       times(R"({"anyOf":[{"type":"null"},)", 60) + "{}" + times("]}", 60), Want::kEither},
      {"allOf of contradictions", kJsonSchema, R"({"allOf":[{"type":"string"},{"type":"null"}]})"},
      {"2,000 properties", kJsonSchema, wide_schema(2000), Want::kEither},
      {"an array of a billion", kJsonSchema,
       R"({"type":"array","items":{"type":"null"},"minItems":1000000000})", Want::kEither},
      {"a text of a billion", kJsonSchema,
       R"({"type":"string","minLength":1000000000,"maxLength":2000000000})", Want::kEither},
      {"counts below zero", kJsonSchema, R"({"type":"array","minItems":-1})", Want::kEither},
      {"counts backwards", kJsonSchema, R"({"type":"array","minItems":5,"maxItems":2})"},
      {"bounds backwards", kJsonSchema, R"({"type":"integer","minimum":5,"maximum":2})"},
      {"bounds beyond numbers", kJsonSchema,
       R"({"type":"integer","minimum":-1e300,"maximum":1e300})", Want::kEither},
      {"an empty enum", kJsonSchema, R"({"enum":[]})"},
      {"a required property that cannot be", kJsonSchema,
       R"({"type":"object","required":["a"],"properties":{"a":false}})", Want::kEither},

      {"no tag", kStructuralTag, R"({})"},
      {"an unknown format", kStructuralTag, R"({"type":"structural_tag","format":{"type":"x"}})"},
      {"a tag without an end", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>"}})"},
      {"triggers without tags", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":[],"tags":[]}})"},
      {"a wrong schema in a tag", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"type":"x"}}})"},
      {"a condition in a tag's schema", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"not":{"type":"null"}}}})",
       Want::kEither},
      {"an anchor in the middle of a tag's pattern", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"regex","pattern":"a^b"}})"},
      {"an anchor in the middle of a pattern in a tag's schema", kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"type":"string","pattern":"a$b"}}})"},
      {"formats nested 60 deep", kStructuralTag,
       R"({"type":"structural_tag","format":)" + times(R"({"type":"sequence","elements":[)", 60) +
           R"({"type":"any_text"})" + times("]}", 60) + "}",
       Want::kEither},
  };
}

TEST(HostileConstraints, AreErrorsOfOneLineWithinTheLimits) {
  const test::GrammarTokenizer made = test::byte_level_tokenizer();
  ConstraintLimits limits;
  limits.compile_seconds = 1;
  limits.compile_bytes = 64 << 20;
  ConstraintCompiler compiler(*made.tokenizer, limits);
  for (const Hostile& c : hostile()) {
    SCOPED_TRACE(fmt::format("{}: {}", name_of(c.kind), c.name));
    const std::clock_t begin = std::clock();  // processor time: others may use the machine
    bool refused = false;
    try {
      Constraint constraint(compiler.compile({.kind = c.kind, .text = c.text}), {made.end});
      // It stands: then it can be walked, or says why not.
      for (int i = 0; i < 40 && !constraint.finished(); ++i) {
        const auto mask = constraint.mask();
        std::int32_t token = 0;
        while ((mask[static_cast<std::size_t>(token) / 32] >> token % 32 & 1) == 0) ++token;
        constraint.accept(token);
      }
    } catch (const Error& error) {
      refused = true;
      const std::string_view what = error.what();
      EXPECT_EQ(what.find('\n'), what.npos) << what;
      EXPECT_LT(what.size(), 500u) << what;
      EXPECT_NE(error.code(), ErrorCode::kOutOfMemory) << what;
    }
    if (c.want == Want::kError) {
      EXPECT_TRUE(refused);
    }
    const double taken = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(taken, 60);  // under a sanitizer
    if (taken > 0.2) {
      std::fprintf(stderr, "%6.2f s %s: %s\n", taken, std::string(name_of(c.kind)).c_str(), c.name);
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 3 << 20);  // KiB
}

// What programs make of their types, and what people write, is taken.
TEST(HostileConstraints, OrdinaryOnesAreTaken) {
  const test::GrammarTokenizer made = test::byte_level_tokenizer();
  ConstraintCompiler compiler(*made.tokenizer);
  for (const char* schema :
       {R"({"title":"A","description":"d","$schema":"x","$id":"y","$comment":"z","examples":[1]})",
        R"({"type":"object","properties":{"a":{"anyOf":[{"type":"integer","exclusiveMinimum":0},
            {"type":"null"}],"default":null,"title":"A"}},"required":["a"]})",
        R"({"$defs":{"B":{"enum":["x","y"],"type":"string"},"C":{"type":"object","properties":
            {"next":{"$ref":"#/$defs/C"},"b":{"$ref":"#/$defs/B","description":"d"}}}},
            "$ref":"#/$defs/C"})",
        R"({"type":"object","properties":{"b":{"allOf":[{"$ref":"#/$defs/B"}],"default":"x"}},
            "$defs":{"B":{"type":"string"}}})",
        R"({"type":"object","oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},
            {"properties":{"k":{"type":"string"}}}],"discriminator":{"propertyName":"k"}})",
        R"({"type":["string","null"],"maxLength":5})",
        R"({"type":"array","uniqueItems":false,"items":{"type":"number","minimum":0}})",
        R"({"type":"array","prefixItems":[{"type":"integer"},{}],"minItems":2,"maxItems":2})",
        R"({"properties":{"not":{"type":"string"},"if":{"type":"integer","multipleOf":5}}})",
        R"({"type":"object","additionalProperties":{"type":"string","format":"date-time"}})",
        R"({"type":"string","pattern":"^(yes|no)$|^maybe$"})"}) {
    SCOPED_TRACE(schema);
    EXPECT_NO_THROW(compiler.compile({.kind = Kind::kJsonSchema, .text = schema}));
  }
  for (const char* regex :
       {"^ab$", "(^a$)|(?:^b$)", "[$^]x\\$", "\\d+\\.\\-\\w\\s", "\\/\\@\\_\\\"\\#"}) {
    SCOPED_TRACE(regex);
    EXPECT_NO_THROW(compiler.compile({.kind = Kind::kRegex, .text = regex}));
  }
}

TEST(HostileConstraints, DotsAreNoLineBreaks) {
  const test::GrammarTokenizer made = test::byte_level_tokenizer();
  ConstraintCompiler compiler(*made.tokenizer);
  for (const ConstraintSpec& spec :
       {ConstraintSpec{.kind = Kind::kRegex, .text = "a.b"},
        ConstraintSpec{.kind = Kind::kStructuralTag,
        .text = R"({"type":"structural_tag","format":{"type":"regex","pattern":"a.b"}})"},
        ConstraintSpec{.kind = Kind::kStructuralTag,
        .text = R"({"type":"structural_tag","format":{"type":"json_schema","style":"cohere_xml",
            "json_schema":{"type":"string","pattern":"a.b"}}})"}}) {
    Constraint constraint(compiler.compile(spec), {made.end});
    constraint.mask();
    constraint.accept('a');
    const auto mask = constraint.mask();
    const auto allows = [&](char c) {
      return (mask[static_cast<std::size_t>(c) / 32] >> c % 32 & 1) != 0;
    };
    EXPECT_TRUE(allows('x') && allows('.') && allows(' '));
    EXPECT_FALSE(allows('\n') || allows('\r'));
  }
}

TEST(HostileConstraints, AmbiguityIsCutOffWhileAnAnswerIsMade) {
  const test::GrammarTokenizer made = test::byte_level_tokenizer();
  ConstraintLimits limits;
  limits.answer_bytes = 16 << 20;
  ConstraintCompiler compiler(*made.tokenizer, limits);
  const ConstraintSpec spec{.kind = Kind::kGrammar,
                            .text = "root ::= root root root | root root | \"a\" | \"aa\" | \"\""};
  const auto walk = [&] {
    Constraint constraint(compiler.compile(spec), {made.end});
    for (int i = 0; i < 4000; ++i) {
      constraint.mask();
      constraint.accept('a');
    }
  };
  EXPECT_THROW(walk(), Error);
}

}  // namespace
}  // namespace bl
