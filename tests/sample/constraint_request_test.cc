// Constraints that are made of texts, that come in requests, and several that hold together.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "sample/constraint_world.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;
using test::grammar;
using test::regex;
using test::schema;
using test::World;

ConstraintSpec read(const std::string& body) {
  return read_constraint(parse_ordered_json(body, "test"), "the request");
}

ConstraintSpec all_of(ConstraintSpec first, std::vector<ConstraintSpec> others) {
  first.also = std::move(others);
  return first;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Constraint, ChoosesOneOfSomeTexts) {
  World world(test::byte_level_tokenizer());
  const std::vector<std::string> texts{"yes", "no", "a \"b\\\n\x01", "\xc3\xa4", ""};
  const ConstraintSpec spec = one_of(texts);
  for (const std::string& text : texts) {
    Constraint constraint = world.start(spec);
    for (const char c : text) constraint.accept(world.token_of(c));
    EXPECT_TRUE(constraint.complete()) << text;
  }
  Constraint constraint = world.start(spec);
  for (const char c : {'x', 'e', '"', '\\', '\n'}) {
    EXPECT_FALSE(constraint.allows(world.token_of(c))) << c;
  }
  constraint.accept(world.token_of('n'));
  EXPECT_FALSE(constraint.complete());
  EXPECT_TRUE(constraint.allows(world.token_of('o')));
  EXPECT_FALSE(constraint.allows(world.token_of('e')));
}

TEST(ConstraintSpec, ReadsWhatGoesWithAForm) {
  const auto read = [](const char* body) {
    return read_constraint(parse_ordered_json(body, "test"), "the request");
  };
  const ConstraintSpec spec =
      read(R"({"guided_choice": ["a", "b"], "trigger_token": 7, "prefer_eos": true})");
  EXPECT_EQ(spec.kind, ConstraintSpec::Kind::kGrammar);
  EXPECT_EQ(spec.trigger_token, 7);
  EXPECT_TRUE(spec.prefer_end);
  EXPECT_FALSE(read(R"({"trigger_token": 7, "prefer_eos": true})"));  // of no form
  for (const char* wrong :
       {R"({"guided_choice": []})", R"({"guided_choice": "a"})", R"({"guided_choice": [1]})",
        R"({"guided_choice": ["a\u0000"]})", R"({"guided_choice": ["a"], "json_schema": {}})",
        R"({"guided_regex": "a", "trigger_token": -1})",
        R"({"guided_regex": "a", "trigger_token": 4294967296})",
        R"({"guided_regex": "a", "trigger_token": "x"})",
        R"({"guided_regex": "a", "prefer_eos": 1})"}) {
    EXPECT_THROW(read(wrong), Error) << wrong;
  }
  EXPECT_THROW(
      read(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}})"), Error);
}

TEST(ConstraintSpec, ReadsBothFormsOfStructuralTags) {
  const auto read = [](const std::string& rest) {
    return read_constraint(
        parse_ordered_json(R"({"response_format":{"type":"structural_tag",)" + rest + "}}", "test"),
        "the request");
  };
  const ConstraintSpec spec = read(
      R"("structures":[{"begin":"<a>","schema":{"type":"integer"},"end":"</a>"}],"triggers":["<a"])");
  World world(test::byte_level_tokenizer());
  EXPECT_TRUE(world.takes(spec, "the <a>12</a> name"));
  EXPECT_FALSE(world.takes(spec, "the <a>x</a> name"));
  for (const char* wrong : {R"("structures":[])", R"("structures":5,"triggers":["<a"])",
                            R"("structures":[5],"triggers":[])",
                            R"("structures":[{"begin":"<a>","end":"</a>"}],"triggers":["<a"])"}) {
    EXPECT_THROW(read(wrong), Error) << wrong;
  }
}

TEST(Constraint, ChoosesATextInAnyCase) {
  World world(test::byte_level_tokenizer());
  const std::vector<std::string> texts{"Yes-no", "\xc3\xa4\xce\xa3", "1]\"x", ""};
  const ConstraintSpec spec = one_of(texts, true);
  for (const char* right : {"Yes-no", "YES-NO", "yEs-nO", "\xc3\xa4\xce\xa3", "\xc3\x84\xcf\x83",
                            "1]\"x", "1]\"X", ""}) {
    EXPECT_TRUE(world.takes(spec, right)) << right;
  }
  for (const char* wrong : {"yes", "yes-no!", "a\xcf\x83", "\xc3\xa4\xcf\x84", "2]\"x", "1]x"}) {
    EXPECT_FALSE(world.takes(spec, wrong)) << wrong;
  }
  EXPECT_FALSE(world.takes(one_of(texts), "YES-NO"));
  EXPECT_TRUE(
      world.takes(read(R"({"guided_choice":["a"],"guided_choice_ignore_case":true})"), "A"));
  EXPECT_FALSE(
      world.takes(read(R"({"guided_choice":["a"],"guided_choice_ignore_case":false})"), "A"));
  const std::vector<std::string> bytes{"\xff"};
  EXPECT_THROW(one_of(bytes, true), Error);
}

TEST(Constraint, BeginsWithOneOfSomeTexts) {
  World world(test::byte_level_tokenizer());
  const ConstraintSpec spec = read(R"({"guided_prefix": ["Sure", "No, \"x\n"]})");
  for (const char* right :
       {"Sure", "Sure\n\nthing \xe2\x82\xac", "No, \"x\n", "No, \"x\n\x01 and so on"}) {
    EXPECT_TRUE(world.takes(spec, right)) << right;
  }
  for (const char* wrong : {"", "Sur", "sure", "No", "Sure\xe2\x82", "Sure\xed\xa0\x80"}) {
    EXPECT_FALSE(world.takes(spec, wrong)) << wrong;
  }
  const std::vector<std::string> any{""};
  EXPECT_TRUE(world.takes(beginning_with(any), "anything"));
  for (const char* wrong :
       {R"({"guided_prefix": []})", R"({"guided_prefix": "a"})", R"({"guided_prefix": [1]})",
        R"({"guided_prefix": ["a\u0000"]})", R"({"guided_prefix": ["a"], "guided_choice": ["a"]})",
        R"({"guided_prefix": ["a"], "guided_choice_ignore_case": true})",
        R"({"guided_choice": ["a"], "guided_choice_ignore_case": 1})"}) {
    EXPECT_THROW(read(wrong), Error) << wrong;
  }
}

TEST(Constraint, LongListsOfTextsAreTakenOrRefused) {
  World world(test::byte_level_tokenizer());
  std::vector<std::string> texts;
  for (int i = 0; i < 2000; ++i) texts.push_back(fmt::format("choice number {}", i));
  EXPECT_TRUE(world.takes(one_of(texts, true), "CHOICE number 1234"));
  EXPECT_TRUE(world.takes(beginning_with(texts), "choice number 1999 and more"));
  texts = {std::string(100'000, 'a')};
  const std::string refused =
      refusal_of([&] { world.compiler.compile(one_of(texts, true)); });  // four bytes a letter
  EXPECT_NE(refused.find("at most 262144 are allowed"), std::string::npos) << refused;
}

// The texts that satisfy several are those that satisfy each.
TEST(ConstraintsTogether, TakeWhatEachTakes) {
  for (const bool fallback : {false, true}) {
    World world(fallback ? test::byte_fallback_tokenizer() : test::byte_level_tokenizer());
    const std::vector<ConstraintSpec> parts{
        regex("[a-c]+x?"), grammar("root ::= \"a\" root | \"x\" | \"b\""), regex("a{2,3}[bx]?")};
    const ConstraintSpec all = all_of(parts[0], {parts[1], parts[2]});
    int taken = 0;
    for (const char* text :
         {"a", "aa", "aab", "aax", "aaab", "aaax", "aaaax", "b", "x", "aabx", "aac", "", "aaa"}) {
      bool each = true;
      for (const ConstraintSpec& part : parts) each = each && world.takes(part, text);
      EXPECT_EQ(world.takes(all, text), each) << text;
      taken += each ? 1 : 0;
    }
    EXPECT_EQ(taken, 4);
  }
}

// The mask of all is the intersection of each one's, along random ways with detours.
TEST(ConstraintsTogether, MasksAreIntersections) {
  World world(test::byte_level_tokenizer());
  const std::vector<ConstraintSpec> parts{
      {.kind = Kind::kJsonObject},
      schema(R"({"type":"object","additionalProperties":{"type":["integer","boolean"]}})"),
      regex("[^e]*")};
  std::mt19937 random(17);
  std::int64_t tokens = 0;
  for (int round = 0; round < 30; ++round) {
    Constraint all = world.start(all_of(parts[0], {parts[1], parts[2]}));
    std::vector<Constraint> each;
    for (const ConstraintSpec& part : parts) each.push_back(world.start(part));
    for (int step = 0; step < 40 && !all.finished(); ++step) {
      std::vector<std::int32_t> allowed;
      bool ends = true;
      for (Constraint& one : each) ends = ends && one.allows(world.made.end);
      for (std::int32_t id = 0; id < world.made.end; ++id) {
        bool by_each = true;
        for (Constraint& one : each) by_each = by_each && one.allows(id);
        if (by_each) allowed.push_back(id);
      }
      if (allowed.empty() && !ends) {  // "fals" goes on with what the third has not
        EXPECT_THROW(all.mask(), Error);
        break;
      }
      std::vector<std::int32_t> found;
      for (std::int32_t id = 0; id < world.made.end; ++id) {
        if (all.allows(id)) found.push_back(id);
      }
      ASSERT_EQ(found, allowed) << "at " << step;
      ASSERT_EQ(all.allows(world.made.end), ends);
      if (allowed.empty()) break;
      const std::int32_t id = allowed[random() % allowed.size()];
      all.accept(id);
      if (random() % 3 == 0) {  // a guess that was wrong
        all.rollback(1);
        all.accept(id);
      }
      for (Constraint& one : each) one.accept(id);
      ++tokens;
    }
  }
  EXPECT_GT(tokens, 300);
}

TEST(ConstraintsTogether, ATokenThatOneRefusesChangesNothing) {
  World world(test::byte_level_tokenizer());
  Constraint constraint = world.start(all_of(regex("[ab]{3}"), {regex("a[a-z]*")}));
  EXPECT_THROW(constraint.accept(world.token_of('b')), Error);  // the first would
  EXPECT_EQ(constraint.accepted(), 0);
  for (const char c : {'a', 'b', 'b'}) constraint.accept(world.token_of(c));
  EXPECT_TRUE(constraint.finished());
  constraint.rollback(3);
  EXPECT_FALSE(constraint.complete());
  EXPECT_FALSE(constraint.allows(world.token_of('b')));
}

TEST(ConstraintsTogether, EachHasItsTrigger) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec digits = regex("[0-9]+");
  digits.trigger_token = world.token_of('!');
  ConstraintSpec few = regex(".{2}");
  few.trigger_token = world.token_of('?');
  const auto take = [&](Constraint& constraint, std::string_view text) {
    for (const char c : text) {
      if (!constraint.allows(world.token_of(c))) return false;
      constraint.accept(world.token_of(c));
    }
    return true;
  };
  Constraint constraint = world.start(all_of(digits, {few}));
  EXPECT_TRUE(take(constraint, "free ?!"));  // '!' is the first of two
  EXPECT_FALSE(constraint.complete());
  EXPECT_FALSE(constraint.allows(world.made.end));
  EXPECT_FALSE(take(constraint, "x"));
  EXPECT_TRUE(take(constraint, "7"));
  EXPECT_TRUE(constraint.finished());
  constraint.rollback(2);  // before '!'
  EXPECT_TRUE(take(constraint, "x"));
  EXPECT_FALSE(constraint.complete());  // for the digits, which nothing asks for yet
  constraint.rollback(2);               // before '?'
  EXPECT_TRUE(take(constraint, "xyz!"));
  EXPECT_FALSE(constraint.complete());
  EXPECT_FALSE(constraint.allows(world.token_of('?')));
}

TEST(ConstraintsTogether, SayWhenTheyHaveNothingInCommon) {
  World world(test::byte_level_tokenizer());
  Constraint constraint = world.start(all_of(regex("ab"), {regex("ac")}));
  constraint.accept(world.token_of('a'));
  EXPECT_FALSE(constraint.finished());
  EXPECT_NE(refusal_of([&] { constraint.mask(); }).find("cannot be satisfied together"),
            std::string::npos);
}

TEST(ConstraintsTogether, EndAsSoonAsAllAreWholeWhereOneAsksForThat) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec early = regex("[a-z]+");
  early.prefer_end = true;
  Constraint constraint = world.start(all_of(regex("[a-y]{2,9}"), {early}));
  constraint.accept(world.token_of('a'));
  EXPECT_FALSE(constraint.finished());
  constraint.accept(world.token_of('b'));
  EXPECT_TRUE(constraint.finished());
}

// An answer that is too short for its end goes on where the form allows that.
TEST(ConstraintsTogether, NoEndIsPreferredBeforeOneMayCome) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec early = regex("[a-z]*");
  early.prefer_end = true;
  Constraint constraint = world.start(all_of(regex("[a-z]*"), {early}));
  const auto has = [&](bool ends_come, std::int32_t id) {
    const std::span<const std::uint32_t> words = constraint.mask(ends_come);
    return (words[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) != 0;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(has(false, world.token_of('q')));
    EXPECT_FALSE(has(true, world.token_of('q')));
    EXPECT_TRUE(has(true, world.made.end));
    EXPECT_FALSE(constraint.finished(false));
    EXPECT_TRUE(constraint.finished(true));
    constraint.accept(world.token_of('q'));
  }
}

TEST(ConstraintsTogether, LimitsAreOfTheSum) {
  World world(test::byte_level_tokenizer());
  const auto refused = [&](const ConstraintLimits& limits, const ConstraintSpec& spec) {
    ConstraintCompiler compiler(*world.made.tokenizer, limits);
    return refusal_of([&] { compiler.compile(spec); });
  };
  const ConstraintSpec large = regex("[a-z]{1,300}" + std::string(600, 'x'));
  EXPECT_EQ(refused({.text_bytes = 1000}, large), "");
  EXPECT_EQ(refused({.text_bytes = 1000}, all_of(large, {large})),
            "the constraints have 1224 bytes together; at most 1000 are allowed");
  std::vector<ConstraintSpec> many(15, regex("a"));
  EXPECT_EQ(refused({}, all_of(regex("a"), many)), "");
  many.push_back(regex("a"));
  EXPECT_EQ(refused({}, all_of(regex("a"), many)),
            "there are 17 constraints; at most 16 may be combined");

  const std::size_t bytes = world.compiler.compile(large).parts[0].grammar->bytes();
  ConstraintLimits limits;
  limits.compile_bytes = std::max<std::size_t>(bytes, 64 << 20);
  std::vector<ConstraintSpec> heavy;
  for (int i = 0; i < 15; ++i)
    heavy.push_back(regex(fmt::format("([a-z]|x{{{}}}){{1,300}}", 10 + i)));
  // Found in the cache, where what compiling remembers does not count.
  ConstraintCompiler compiler(*world.made.tokenizer, limits);
  std::size_t sum = 0;
  for (const ConstraintSpec& one : heavy) sum += compiler.compile(one).parts[0].grammar->bytes();
  limits.compile_bytes = sum - 1;
  EXPECT_NE(refused(limits, all_of(heavy[0], {heavy.begin() + 1, heavy.end()})), "");
}

TEST(ConstraintsTogether, NothingFailsOpen) {
  World world(test::byte_level_tokenizer());
  ConstraintSpec hidden;  // of no form itself
  hidden.also = {regex("a")};
  EXPECT_TRUE(static_cast<bool>(hidden));
  EXPECT_THROW(world.compiler.compile(hidden), Error);
  EXPECT_THROW(world.compiler.compile(all_of(regex("a"), {ConstraintSpec{}})), Error);
  EXPECT_THROW(world.compiler.compile(all_of(regex("a"), {all_of(regex("a"), {regex("a")})})),
               Error);
  EXPECT_THROW(world.compiler.compile(all_of(regex("a"), {regex("((")})), Error);
}

// llama-server's clients put a schema beside the type.
TEST(Constraints, AJsonObjectMayHaveASchema) {
  const ConstraintSpec spec =
      read(R"({"response_format": {"type": "json_object", "schema": {"const": "42"}}})");
  EXPECT_EQ(spec.kind, Kind::kJsonSchema);
  EXPECT_EQ(spec.text, R"({"const":"42"})");
  EXPECT_EQ(read(R"({"response_format": {"type": "json_object", "schema": null}})").kind,
            Kind::kJsonObject);
  EXPECT_THROW(read(R"({"response_format": {"type": "json_object", "schema": 123}})"), Error);
}

TEST(ConstraintsTogether, AreReadFromRequests) {
  const ConstraintSpec spec = read(R"({"guided_regex": "a+", "trigger_token": 3, "constraints": [
      {"response_format": {"type": "json_object"}, "prefer_eos": true},
      {"guided_choice": ["a"], "trigger_token": 5}]})");
  EXPECT_EQ(spec.kind, Kind::kRegex);
  EXPECT_EQ(spec.trigger_token, 3);
  EXPECT_FALSE(spec.prefer_end);
  ASSERT_EQ(spec.also.size(), 2u);
  EXPECT_EQ(spec.also[0].kind, Kind::kJsonObject);
  EXPECT_EQ(spec.also[0].trigger_token, 3);
  EXPECT_TRUE(spec.also[0].prefer_end);
  EXPECT_EQ(spec.also[1].trigger_token, 5);

  const ConstraintSpec alone =
      read(R"({"constraints": [{"guided_regex": "a"}], "prefer_eos": true})");
  EXPECT_EQ(alone.text, "a");
  EXPECT_TRUE(alone.prefer_end && alone.also.empty());
  EXPECT_FALSE(read(R"({"constraints": []})"));
  EXPECT_FALSE(read(R"({"constraints": null})"));

  for (const char* wrong :
       {R"({"constraints": {}})", R"({"constraints": ["a"]})", R"({"constraints": [{}]})",
        R"({"constraints": [{"response_format": {"type": "text"}}]})",
        R"({"constraints": [{"guided_regex": "a", "constraints": [{"guided_regex": "b"}]}]})",
        R"({"constraints": [{"type": "regex", "pattern": "a"}]})",
        R"({"constraints": [{"guided_regex": "a", "guided_json": {}}]})",
        R"({"constraints": [{"guided_regex": "a", "trigger_token": -1}]})",
        R"({"guided_regex": "a", "guided_json": {}, "constraints": []})"}) {
    EXPECT_THROW(read(wrong), Error) << wrong;
  }
  EXPECT_EQ(refusal_of([] { read(R"({"constraints": [{"guided_regex": "a"}, {}]})"); }),
            "the request: constraints[1] has no constraint");
}

}  // namespace
}  // namespace bl
