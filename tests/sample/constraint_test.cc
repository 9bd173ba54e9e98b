// Constraints against texts, validators and random walks of their own: nothing here knows the
// library of grammars.
#include "sample/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <regex>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "sample/constraint_world.h"
#include "sample/random_schema.h"
#include "text/token_bytes.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;
using test::grammar;
using test::regex;
using test::schema;
using test::World;

struct Walk {
  std::string text;
  std::vector<std::int32_t> ids;
  bool whole = false;
};

// Follows the masks at random, checking every token's bit against what accept() says about it for a
// few of them; leans to tokens that close after `lean` of them.
Walk walk(World& world, Constraint& constraint, std::mt19937& random, int most) {
  Walk walk;
  for (int step = 0; step < most; ++step) {
    if (constraint.finished()) {
      walk.whole = true;
      return walk;
    }
    std::vector<std::int32_t> allowed;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(world.bytes.size()); ++id) {
      if (constraint.allows(id)) allowed.push_back(id);
    }
    EXPECT_FALSE(allowed.empty()) << walk.text;
    if (allowed.empty()) return walk;
    std::int32_t id = allowed[random() % allowed.size()];
    if (step > 20) {
      // Anything that closes, so that walks come to an end.
      for (const std::int32_t other : allowed) {
        const std::string& bytes = world.bytes[static_cast<std::size_t>(other)];
        if (other == world.made.end || bytes == "\"" || bytes == "}" || bytes == "]") {
          id = other;
          if (random() % 4 != 0) break;
        }
      }
    }
    constraint.accept(id);
    walk.ids.push_back(id);
    if (id == world.made.end) {
      walk.whole = true;
      return walk;
    }
    walk.text += world.bytes[static_cast<std::size_t>(id)];
  }
  return walk;
}

// Numbers of any size are JSON; the reader takes those of a double.
Json read_json(const std::string& text) {
  static const std::regex kLargeExponent("[eE][+-]?[0-9]{3,}");
  return Json::parse(std::regex_replace(text, kLargeExponent, "e1"), nullptr, false);
}

TEST(TokenBytes, OfEveryKindOfVocabulary) {
  for (const bool fallback : {false, true}) {
    const test::GrammarTokenizer made =
        fallback ? test::byte_fallback_tokenizer() : test::byte_level_tokenizer();
    const std::vector<std::string> bytes = token_bytes(*made.tokenizer);
    ASSERT_EQ(bytes.size(), static_cast<std::size_t>(made.tokenizer->vocab_size()));
    for (int byte = 0; byte < 256; ++byte) {
      EXPECT_EQ(bytes[static_cast<std::size_t>(byte)], std::string(1, static_cast<char>(byte)));
    }
    EXPECT_TRUE(bytes[static_cast<std::size_t>(made.end)].empty());
    const auto has = [&](const char* text) {
      return std::find(bytes.begin() + 256, bytes.end(), text) != bytes.end();
    };
    EXPECT_TRUE(has(" true"));
    EXPECT_TRUE(has("\": "));
    EXPECT_TRUE(has("  "));
    EXPECT_EQ(has("\xe2\x82"), !fallback);
  }
}

TEST(Constraint, TakesTheTextsThatItsGrammarHas) {
  struct Case {
    ConstraintSpec spec;
    std::vector<const char*> right;
    std::vector<const char*> wrong;
  };
  const ConstraintSpec person = schema(
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]})");
  const std::vector<Case> cases{
      {regex("[a-c]+x?"), {"a", "abcx", "cc"}, {"", "x", "ax.", "abd"}},
      {regex("(foo|bar)\\d{2,3}"), {"foo12", "bar999"}, {"foo1", "foo1234", "baz12"}},
      {regex("[^a]"),
       {"b", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"},
       {"a", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80"}},
      {regex("[\\^a]+"), {"^", "a^"}, {"", "b", "!"}},
      {regex("[\\x5e-z]"), {"^", "a", "z"}, {"-", "!"}},
      // Beside a set a - is a sign, as in ECMAScript.
      {regex("[\\d-z]"), {"0", "-", "z"}, {":", "a"}},
      {regex("[\\w-.]"), {"a", "-", "."}, {"/"}},
      {regex("[+-\\d]"), {"+", "-", "7"}, {","}},
      {regex("[\\\\d-f]"), {"\\", "e"}, {"7", "-"}},
      {grammar("start: /[\\^a]/"), {"^", "a"}, {"b"}},
      {regex("\xc3\xa9+"), {"\xc3\xa9", "\xc3\xa9\xc3\xa9"}, {"e", "\xc3"}},
      {grammar("root ::= \"a\" root \"b\" | \"\""), {"", "ab", "aabb"}, {"a", "abb", "ba"}},
      {grammar("root ::= item (\",\" item)*\nitem ::= [0-9]+ # digits"), {"1", "1,22"}, {"", "1,"}},
      {grammar("start: \"yes\" | \"no\""), {"yes", "no"}, {"maybe", ""}},
      // GBNF's any character.
      {grammar("root ::= \"<.\" . [.] .* # not this .\n"),
       {"<.a.", "<.\n.", "<.\xc3\xa9.x\xf0\x9f\x98\x80", "<..."},
       {"<a.", "<.a", "<.a!", "<..", "<.\xc3."}},
      {{.kind = Kind::kJsonObject}, {"{}", "{\"a\": [1, null]}", "{ }"}, {"[]", "1", "", "{"}},
      {person,
       {"{\"name\": \"x\"}", "{\"name\":\"\\u00e9\",\"age\":-3}"},
       {"{}", "{\"age\":1}", "{\"name\":1}", "{\"name\":\"x\",\"age\":1.5}",
        "{\"name\":\"x\",\"b\":1}"}},
      {schema(R"({"enum":["a",2,null]})"), {"\"a\"", "2", "null"}, {"\"b\"", "3", ""}},
      {schema(R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})"),
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]"}},
      {schema(
           R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":[]}}})"),
       {"{}", "{\"n\": {\"n\": {}}}"},
       {"{\"n\": 1}"}},
      {{.kind = Kind::kStructuralTag,
        .text =
            R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</a>"}})"},
       {"<a>12</a>"},
       {"12", "<a>x</a>", "<a>12"}},
  };
  for (const bool fallback : {false, true}) {
    World world(fallback ? test::byte_fallback_tokenizer() : test::byte_level_tokenizer());
    for (const Case& c : cases) {
      for (const char* text : c.right)
        EXPECT_TRUE(world.takes(c.spec, text)) << c.spec.text << " : " << text;
      for (const char* text : c.wrong)
        EXPECT_FALSE(world.takes(c.spec, text)) << c.spec.text << " : " << text;
    }
  }
}

// What an escape says, wherever one may stand, is a character; two halves of one are one.
TEST(Constraint, EscapesAreCharacters) {
  World world(test::byte_level_tokenizer());
  const std::string face = "\xf0\x9f\x98\x80";  // U+1F600
  const auto pattern = [](const char* text) {
    return schema(Json{{"type", "string"}, {"pattern", text}}.dump());
  };
  const auto tag = [](const Json& format) {
    return ConstraintSpec{.kind = Kind::kStructuralTag,
                          .text = Json{{"type", "structural_tag"}, {"format", format}}.dump()};
  };
  for (const ConstraintSpec& spec :
       {regex("\\ud83d\\ude00"), regex("[\\ud83d\\ude00]"),
        regex("[\\ud83d\\ude00-\\uD83D\\uDE02]"), regex("\\u{1f600}"), regex("[^\\ud83d\\ude01]"),
        regex("(\\uD83D\\uDE00){1}"), grammar("root ::= \"\\U0001F600\""),
        grammar("root ::= \"\\ud83d\\ude00\""), grammar("root ::= [\\ud83d\\ude00]"),
        grammar("start: \"\\ud83d\\ude00\""), grammar("start: /\\ud83d\\ude00/"),
        grammar("start: /[\\ud83d\\ude00]/i"), grammar("start: /\\u{1f600}/"),
        tag({{"type", "regex"}, {"pattern", "\\ud83d\\ude00"}}),
        tag({{"type", "const_string"}, {"value", face}})}) {
    EXPECT_TRUE(world.takes(spec, face)) << spec.text;
    EXPECT_FALSE(world.takes(spec, "\xed\xa0\xbd\xed\xb8\x80")) << spec.text;
    EXPECT_FALSE(world.takes(spec, "\xf0\x9f\x98\x81") &&
                 spec.text.find('-') == std::string::npos &&
                 spec.text.find('^') == std::string::npos)
        << spec.text;
  }
  for (const char* text : {"\\ud83d\\ude00", "[\\ud83d\\ude00]", "^\\ud83d\\ude00$"}) {
    EXPECT_TRUE(world.takes(pattern(text), '"' + face + '"')) << text;
  }
  // Two digits, whatever follows.
  EXPECT_TRUE(world.takes(grammar("root ::= \"\\x41f\""), "Af"));
  EXPECT_TRUE(world.takes(regex("\\x41f[\\x42f]"), "AfB"));
}

TEST(Constraint, WhatIsNoCharacterIsRefusedWithItsPlace) {
  World world(test::byte_level_tokenizer());
  const std::string half = "\xed\xa0\x80";  // U+D800, were it UTF-8
  struct Case {
    ConstraintSpec spec;
    const char* place;
  };
  const std::vector<Case> cases{
      {regex("a\\ud800"), "at offset 1"},
      {regex("a[\\udc00]"), "at offset 2"},
      {regex("\\u{d800}"), "at offset 0"},
      {regex("\\u{110000}"), "at offset 0"},
      {regex("\\U00110000"), "at offset 0"},
      {regex("\\U0000d800"), "at offset 0"},
      {regex("ab" + half), "at byte 2"},
      {grammar("root ::= \"\\ud800\""), "line 1"},
      {grammar("root ::=\n \"\\U00110000\""), "line 2"},
      {grammar("root ::= \"\\ude00\\ud83d\""), "line 1"},
      {grammar("root ::= \"\\xff\\ud83d\""), "line 1"},
      {grammar("root ::= [\\ud800-\\udfff]"), "line 1"},
      {grammar("root ::= \"\\UFFFFFFFF\""), "line 1"},
      {grammar("root ::= \"\\x1\""), "line 1"},
      {grammar("root ::= \"" + half + "\""), "at byte 10"},
      {grammar("root ::= \"\xc0\x80\""), "at byte 10"},
      {grammar("root ::= \"\xf4\x90\x80\x80\""), "at byte 10"},
      {grammar("start: \"\\ud800\""), "1"},
      {grammar("start: /a\\ud800/"), "line 1"},
      {grammar("start: /a\\ud800/i"), "position"},
      {grammar("start: /\\u{110000}/i"), "position"},
      {schema(R"({"items":{"type":"string","pattern":"a\\ud800"}})"), "at offset 1"},
      {schema(R"({"type":"object","patternProperties":{"\\udfff":{}}})"), "at offset 0"},
      {schema(R"({"const":"\ud800"})"), ""},
      {{.kind = Kind::kStructuralTag,
        .text = R"({"type":"structural_tag","format":{"type":"regex","pattern":"\\u{d800}"}})"},
       "#/format"},
      {{.kind = Kind::kStructuralTag,
        .text =
            R"({"type":"structural_tag","format":{"type":"grammar","grammar":"root ::= \"\\udfff\""}})"},
       "line 1"},
      {regex("\\c\xf4\x8f\xbf\xbd"), "at offset 0"},
      {grammar("start: /(?<\xf4\x8f\xbf\xbd>a)/"), "position 4"},
      {grammar("start: /a^b/"), "'^'"},
      {grammar("start: /a$b/i"), "'$'"},
  };
  for (const Case& c : cases) {
    try {
      world.compiler.compile(c.spec);
      ADD_FAILURE() << c.spec.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_NE(std::string(error.what()).find(c.place), std::string::npos)
          << c.spec.text << " : " << error.what();
    }
  }
}

// A name for which several members hold is given a value that satisfies all of them.
TEST(Constraint, PatternsOfNamesHoldTogether) {
  World world(test::byte_level_tokenizer());
  const auto object = [](const char* properties, const char* patterns) {
    return schema(fmt::format(R"({{"type":"object","properties":{},"patternProperties":{}}})",
                              properties, patterns));
  };
  const ConstraintSpec named = object(R"({"ab":{"minimum":3}})", R"({"^a":{"type":"integer"}})");
  EXPECT_TRUE(world.takes(named, R"({"ab":3,"ac":1})"));
  EXPECT_FALSE(world.takes(named, R"({"ab":2})"));
  EXPECT_FALSE(world.takes(named, R"({"ab":3.5})"));
  EXPECT_FALSE(world.takes(named, R"({"ac":"x"})"));
  const ConstraintSpec patterns =
      object("{}", R"({"^[ab]$":{"type":"integer"},"^[bc]$":{"minimum":7}})");
  EXPECT_TRUE(world.takes(patterns, R"({"a":1,"b":7,"c":"x","d":null})"));
  EXPECT_FALSE(world.takes(patterns, R"({"b":6})"));
  EXPECT_FALSE(world.takes(patterns, R"({"b":"x"})"));
  EXPECT_TRUE(world.takes(object(R"({"a":{"type":"null"}})", R"({"(?i)A":{}})"), R"({"a":null})"));
  for (const ConstraintSpec& right :
       {object(R"({"ba":{"type":"null"},"aa":{"type":"null"}})", R"({"^a$":{"type":"integer"}})"),
        object(R"({"ab":{"type":"null"}})", R"({"^a":{}})"),
        object("{}", R"({"^S_":{"type":"integer"},"^I_":{"type":"null"}})"),
        object("{}", R"({"^(S|I)_.*$":{"type":"integer"},"^N_.*$":{"type":"null"}})"),
        object("{}", R"({"^[|S]_.*$":{"type":"integer"},"^N_.*$":{"type":"null"}})"),
        object(R"({"a$":{"type":"null"}})", R"({"a\\$$":{},"^$":{"type":"integer"}})")}) {
    EXPECT_NO_THROW(world.compiler.compile(right)) << right.text;
  }
}

// The mask is exactly what accept() takes, for every token and along whole answers.
TEST(Constraint, TheMaskIsWhatIsAccepted) {
  for (const bool fallback : {false, true}) {
    World world(fallback ? test::byte_fallback_tokenizer() : test::byte_level_tokenizer());
    std::mt19937 random(3);
    const std::vector<ConstraintSpec> specs{
        {.kind = Kind::kJsonObject},
        regex("(the|ab+c?)( name| age)* \xe2\x82\xac?"),
        grammar("root ::= \"a\" root \"b\" | \"x\" | root2\nroot2 ::= [a-z ]{1,7}"),
        schema(
            R"({"type":"object","properties":{"id":{"type":"number"},"name":{"enum":["ab","abc"]}},"required":["id","name"]})")};
    std::int64_t checked = 0;
    for (const ConstraintSpec& spec : specs) {
      Constraint constraint = world.start(spec);
      for (int step = 0; step < 12 && !constraint.finished(); ++step) {
        std::vector<std::int32_t> allowed;
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(world.bytes.size()); ++id) {
          const bool bit = constraint.allows(id);
          bool taken = true;
          try {
            constraint.accept(id);
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
            taken = false;
          }
          if (taken) constraint.rollback(1);
          EXPECT_EQ(bit, taken) << "token " << id << " of " << spec.text;
          if (bit && id != world.made.end) allowed.push_back(id);
          ++checked;
        }
        if (allowed.empty()) break;
        constraint.accept(allowed[random() % allowed.size()]);
      }
    }
    EXPECT_GT(checked, 5000);
  }
}

TEST(Constraint, RollbackIsAsIfItHadNotBeen) {
  World world(test::byte_level_tokenizer());
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    const ConstraintSpec spec = round % 2 == 0 ? ConstraintSpec{.kind = Kind::kJsonObject}
                                               : schema(test::random_schema(random).dump());
    Constraint direct = world.start(spec);
    Constraint detour = world.start(spec);
    const Walk walked = walk(world, direct, random, 60);
    for (std::size_t i = 0; i < walked.ids.size(); ++i) {
      // Some other way first, which is taken back.
      std::int64_t away = 0;
      for (; away < 4 && !detour.finished(); ++away) {
        std::vector<std::int32_t> allowed;
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(world.bytes.size()); ++id) {
          if (detour.allows(id)) allowed.push_back(id);
        }
        ASSERT_FALSE(allowed.empty());
        detour.accept(allowed[random() % allowed.size()]);
      }
      detour.rollback(away);
      ASSERT_TRUE(detour.allows(walked.ids[i]));
      detour.accept(walked.ids[i]);
    }
    EXPECT_EQ(detour.complete(), direct.complete());
    EXPECT_EQ(detour.finished(), direct.finished());
    if (direct.finished()) continue;
    const auto a = direct.mask();
    const auto b = detour.mask();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

// Whatever the masks let pass is JSON that satisfies the schema.
TEST(Constraint, RandomSchemasGiveTextsThatSatisfyThem) {
  World level(test::byte_level_tokenizer());
  World fallback(test::byte_fallback_tokenizer());
  std::mt19937 random(5);
  int whole = 0;
  for (int round = 0; round < 150; ++round) {
    World& world = round % 2 == 0 ? level : fallback;
    const Json wanted = test::random_schema(random);
    Constraint constraint = world.start(schema(wanted.dump()));
    const Walk walked = walk(world, constraint, random, 400);
    if (!walked.whole) continue;
    ++whole;
    const Json value = read_json(walked.text);
    ASSERT_FALSE(value.is_discarded()) << wanted << "\n" << walked.text;
    EXPECT_EQ(test::violation(wanted, value), "") << wanted << "\n" << walked.text;
    // And it is decoded so.
    std::vector<std::int32_t> ids = walked.ids;
    if (ids.back() == world.made.end) ids.pop_back();
    const std::string decoded = world.made.tokenizer->decode(ids, true);
    EXPECT_TRUE(decoded == walked.text || " " + decoded == walked.text) << decoded;
  }
  EXPECT_GT(whole, 100);
}

// Where strings come from patterns, formats and bounds of length, nothing gets into them that must
// be escaped.
TEST(Constraint, StringsOfEveryKindAreJson) {
  std::vector<std::string> schemas{
      R"({"type":"object","propertyNames":{"maxLength":3}})",
      R"({"type":"object","propertyNames":{"pattern":"^[^a]+$"}})",
      R"({"type":"object","patternProperties":{"^[^b]$":{"type":"null"}}})",
      R"({"const":"a\u0001\"\n"})",
      R"({"type":"object","properties":{"a\u0001\"":{"type":"null"}},"required":["a\u0001\""]})",
      R"({"type":"object","additionalProperties":{"type":"string","minLength":1,"maxLength":2}})"};
  for (const char* format :
       {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "iri",
        "uri-reference", "uri-template", "json-pointer", "relative-json-pointer", "uuid", "x"}) {
    schemas.push_back(Json{{"type", "string"}, {"format", format}}.dump());
  }
  // Random walks seldom find what is searched for in the middle of a text, hence the anchors.
  for (const char* pattern : {"^[^a]*$", ".*", "\\W+", "[\\x00-\\x30]+", "\\s\\S", "[^]{2}",
                              "^a\"b$", "^\\\\+$", "^[\xc3\xa4\xc3\xb6]+$", "a|\"", "\n"}) {
    schemas.push_back(Json{{"type", "string"}, {"pattern", pattern}}.dump());
  }
  World world(test::byte_level_tokenizer());
  std::mt19937 random(8);
  for (const std::string& text : schemas) {
    int whole = 0;
    for (int round = 0; round < 25; ++round) {
      Constraint constraint = world.start(schema(text));
      const Walk walked = walk(world, constraint, random, 100);
      if (!walked.whole) continue;
      ++whole;
      EXPECT_FALSE(read_json(walked.text).is_discarded()) << text << "\n" << walked.text;
    }
    EXPECT_GT(whole, 0) << text;
  }
}

TEST(Constraint, EndsExactlyWhereTheGrammarMayEnd) {
  World world(test::byte_level_tokenizer());
  Constraint constraint = world.start(regex("ab*"));
  EXPECT_FALSE(constraint.allows(world.made.end));
  EXPECT_THROW(constraint.accept(world.made.end), Error);
  constraint.accept(world.token_of('a'));
  EXPECT_TRUE(constraint.allows(world.made.end));
  EXPECT_TRUE(constraint.complete());
  EXPECT_FALSE(constraint.finished());  // more b may follow
  constraint.accept(world.made.end);
  EXPECT_TRUE(constraint.finished());
  constraint.rollback(1);
  EXPECT_TRUE(constraint.allows(world.token_of('b')));

  Constraint one = world.start(regex("ab"));
  one.accept(world.token_of('a'));
  EXPECT_FALSE(one.finished());
  one.accept(world.token_of('b'));
  EXPECT_TRUE(one.finished());
}

TEST(Constraint, IsFreeUntilItsTrigger) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec spec = regex("12");
  spec.trigger_token = world.token_of('!');
  Constraint constraint = world.start(spec);
  for (const char c : {'z', '1'}) {
    EXPECT_TRUE(constraint.allows(world.token_of(c)));
    constraint.accept(world.token_of(c));
  }
  EXPECT_FALSE(constraint.allows(world.made.end));
  constraint.accept(world.token_of('!'));
  EXPECT_FALSE(constraint.allows(world.token_of('z')));
  constraint.accept(world.token_of('1'));
  constraint.rollback(2);
  EXPECT_TRUE(constraint.allows(world.token_of('z')));
  for (const char c : {'!', '1', '2'}) constraint.accept(world.token_of(c));
  EXPECT_TRUE(constraint.finished());
}

TEST(Constraint, EndsAsSoonAsItMay) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec spec = regex("[0-9]+");
  spec.prefer_end = true;
  Constraint early = world.start(spec);
  EXPECT_FALSE(early.finished());
  EXPECT_FALSE(early.allows(world.made.end));
  early.accept(world.token_of('1'));
  EXPECT_TRUE(early.finished());
  EXPECT_TRUE(early.allows(world.made.end));
  EXPECT_FALSE(early.allows(world.token_of('2')));
  early.rollback(1);
  EXPECT_TRUE(early.allows(world.token_of('2')));

  // The same grammar, which is compiled once, for somebody else.
  Constraint late = world.start(regex("[0-9]+"));
  late.accept(world.token_of('1'));
  EXPECT_FALSE(late.finished());
  EXPECT_TRUE(late.allows(world.token_of('2')));
}

TEST(Constraint, SaysWhenTheVocabularyCannotGoOn) {
  // A tokenizer whose only texts are the words: no digit is among them.
  const Json document = {
      {"version", "1.0"},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}}};
  const auto tokenizer = Tokenizer::from_json(document.dump(), "{}", "test");
  ConstraintCompiler compiler(*tokenizer);
  Constraint constraint(compiler.compile(regex("a[0-9]")), {});
  constraint.accept(0);
  EXPECT_FALSE(constraint.finished());
  try {
    constraint.mask();
    FAIL() << "nothing can follow";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("cannot be satisfied"), std::string::npos);
  }
}

TEST(ConstraintCompiler, KeepsWhatWasUsedLastWithinItsBytes) {
  World world(test::byte_level_tokenizer());
  const std::size_t one = world.compiler.compile(regex("a{1,9}0")).parts[0].grammar->bytes();
  ConstraintLimits limits;
  limits.cache_bytes = 4 * one;
  ConstraintCompiler compiler(*world.made.tokenizer, limits);
  const auto spec = [](int i) { return regex(fmt::format("a{{1,9}}{}", i)); };
  const auto first = compiler.compile(spec(0)).parts[0].grammar;
  EXPECT_EQ(compiler.compile(spec(0)).parts[0].grammar, first);
  for (int i = 1; i < 10; ++i) {
    compiler.compile(spec(i));
    EXPECT_EQ(compiler.compile(spec(0)).parts[0].grammar, first);  // in use again and again
    EXPECT_LE(compiler.stats().bytes, limits.cache_bytes);
  }
  EXPECT_LT(compiler.stats().grammars, 5u);
  EXPECT_EQ(compiler.stats().misses, 10);
  compiler.compile(spec(1));  // had gone
  EXPECT_EQ(compiler.stats().misses, 11);
}

TEST(ConstraintCompiler, ServesManyThreads) {
  World world(test::byte_level_tokenizer());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        const char last = static_cast<char>('a' + (i + t) % 5);
        Constraint constraint = world.start(regex(fmt::format("x{}", last)));
        constraint.accept(world.made.tokenizer->token_to_id("x").value());
        constraint.accept(world.made.tokenizer->token_to_id(std::string(1, last)).value());
        right += constraint.finished() ? 1 : 0;
        try {
          world.compiler.compile(regex("(("));
        } catch (const Error&) {
          ++right;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 12 * 2);
}

}  // namespace
}  // namespace bl
