// JSON schemas as constraints: which texts they accept, what is refused and with which words, and
// the masks of strings whose characters are counted.

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "sample/constraint_world.h"
#include "support/data.h"

namespace bl {
namespace {

using test::schema;
using test::World;

World& world() {
  static World made(test::byte_level_tokenizer());
  return made;
}

void expect(const ConstraintSpec& spec, const std::vector<const char*>& right,
            const std::vector<const char*>& wrong) {
  for (const char* text : right)
    EXPECT_TRUE(world().takes(spec, text)) << spec.text << " : " << text;
  for (const char* text : wrong)
    EXPECT_FALSE(world().takes(spec, text)) << spec.text << " : " << text;
}

std::string refusal(const ConstraintSpec& spec) {
  try {
    world().compiler.compile(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const char* text) { return refusal(schema(text)); }

TEST(ConstraintSchema, StringsOfBoundedLengthHoldEveryEscape) {
  expect(schema(R"({"type":"string","minLength":2,"maxLength":3})"),
         {R"("ab")", R"("abc")", R"("\n\"")", R"("\u00e9\\")", R"("\ud83d\ude00a")",
          "\"\xf0\x9f\x98\x80z\"", R"("\/\u0041\t")"},
         {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("\ud83da")", "\"a\nb\"", R"("\x")"});
  // The first byte of a character that would be one too many is refused already.
  expect(schema(R"({"type":"string","maxLength":1})"),
         {R"("a")", R"("\u00e9")", R"("\ud83d\ude00")", "\"\xc3\xa9\""},
         {R"("\u00e9\u00e9")", R"("\ud83d\ude00a")", "\"\xc3\xa9\xc3\xa9\""});
  expect(schema(R"({"type":"string","maxLength":100})"), {R"("say \"hi\"")", R"("")"}, {R"("a)"});
  expect(schema(R"({"type":"string","minLength":3,"maxLength":3000000000})"), {R"("abc")"},
         {R"("ab")"});
}

TEST(ConstraintSchema, PatternsAreSearched) {
  expect(schema(R"({"type":"string","pattern":"^https?://"})"),
         {R"("https://a.org/b")", R"("http:\/\/x")"}, {R"("ftp://a")", R"("xhttp://")"});
  expect(schema(R"({"type":"string","pattern":"\\S"})"), {R"("hello there")", R"(" \n.")"},
         {R"(" ")", R"("")"});
  expect(schema(R"({"type":"string","pattern":""})"), {R"("")", R"("any\n")"}, {"1"});
  // ECMAScript's classes of every character and of none.
  expect(schema(R"({"type":"string","pattern":"^[^]{2}$"})"), {R"("a\n")", R"("]]")"},
         {R"("a")", R"("abc")"});
  expect(schema(R"({"type":"string","pattern":"^(a|[])$"})"), {R"("a")"}, {R"("")", R"("]")"});
  expect(schema(R"({"type":"string","pattern":"a|^b|c$"})"), {R"("xax")", R"("bx")", R"("xc")"},
         {R"("xb")", R"("cx")"});
  expect(schema(R"({"type":"string","pattern":"^a.b$"})"),
         {R"("a\tb")", R"("a\"b")",
          "\"a\xc3\xa9"
          "b\""},
         {R"("a\nb")", R"("a\tbc")"});
  expect(schema(R"({"type":"string","pattern":"^(?!x)(?=.*[0-9])\\w{2,}$","maxLength":4})"),
         {R"("a1")", R"("1234")"}, {R"("x1")", R"("ab")", R"("a1234")"});
  expect(
      schema(
          R"({"type":"object","patternProperties":{"_id$":{"type":"integer"}},"additionalProperties":false})"),
      {R"({"a_id":1})", R"({"_id": 1, "x_id": 2})", "{}"}, {R"({"a_id":"x"})", R"({"a_id_":1})"});
}

TEST(ConstraintSchema, ExactlyOneBranchOfOneOfHolds) {
  expect(
      schema(
          R"({"oneOf":[{"type":"integer","minimum":0,"maximum":9},{"type":"number","minimum":0,"maximum":9}]})"),
      {"1.5", "0.25"}, {"1", "9", "1.0", "9.5"});
  expect(
      schema(R"({"oneOf":[{"type":"integer","multipleOf":2},{"type":"integer","multipleOf":3}]})"),
      {"2", "3", "4", "9"}, {"6", "0", "12", "5"});
  expect(
      schema(R"({"properties":{"a":{},"b":{}},"oneOf":[{"required":["a"]},{"required":["b"]}]})"),
      {R"({"a":1})", R"({"b": [] })"}, {R"({"a":1,"b":2})", "{}"});
}

TEST(ConstraintSchema, ItemsAndMembersThatAreNotDescribed) {
  expect(schema(R"({"type":"array","maxItems":3})"), {"[]", "[1]", R"([{"a":[]},null,"x"])"},
         {"[1,2,3,4]"});
  expect(schema(R"({"type":"array","minItems":1})"), {"[1]", "[[],[]]"}, {"[]"});
  expect(schema(R"({"type":"object","properties":{}})"), {R"({"z": 1})", "{}"}, {"[]"});
  ConstraintSpec tool = schema(R"({"type":"object","properties":{}})");
  tool.tool_parameters = true;
  expect(tool, {"{}"}, {R"({"z":1})"});
  expect(schema(R"({"type":"array","items":{"type":"integer"},"additionalItems":false})"),
         {"[1,2]"}, {"[true]"});
  expect(schema(R"({"properties":{"a":{"type":"string"}},"required":["a","b"]})"),
         {R"({"a":"x","b":[1]})"},
         {R"({"a":"x"})", R"({"b":1,"a":"x"})", R"({"a":"x","b":1,"c":1})"});
  expect(schema(R"({"type":"object","required":["y","x"]})"),
         {R"({"x":1,"y":2})", R"({"y":1,"z":0,"x":2})"}, {R"({"x":1})", R"({"z":1,"y":2})"});
  expect(schema(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})"),
         {R"([1,"a"])", "[1]", "[]"}, {R"([1,"a",2])", R"(["a"])"});
}

TEST(ConstraintSchema, WhiteSpaceIsBounded) {
  const std::string blanks(64, ' ');
  ConstraintSpec spec = schema(
      R"({"properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]})");
  const std::string deep = "{\n" + blanks + "\"a\":[1]}";
  const std::string deeper = "{\n " + blanks + "\"a\":[1]}";
  expect(spec,
         {R"({"a":[1,2]})", R"({"a": [1, 2]})", R"({ "a" : [ 1 , 2 ] })",
          "{\n  \"a\": [\n    1\n  ]\n}", deep.c_str()},
         {R"({"a":  [1]})", "{\n\n\"a\":[1]}", deeper.c_str(), " {\"a\":[1]}", "{\"a\":[1]} "});
  spec.whitespace = json_whitespace_of("compact");
  expect(spec, {R"({"a":[1,2]})"}, {R"({"a": [1,2]})"});
  spec.whitespace = json_whitespace_of("2");
  expect(spec, {R"({"a":  [1]})", "{\n\n\"a\":\t[1]}"}, {R"({"a":   [1]})"});
  EXPECT_THROW(json_whitespace_of("lots"), Error);
  EXPECT_THROW(json_whitespace_of("1001"), Error);
}

TEST(ConstraintSchema, NumbersKeepTheirBoundsExactly) {
  expect(schema(R"({"type":"integer","minimum":-12,"exclusiveMaximum":1000000000000000000})"),
         {"-12", "0", "999999999999999999"}, {"-13", "1000000000000000000", "01", "-0", "1.0"});
  expect(schema(R"({"type":"number","exclusiveMinimum":0.1,"maximum":2.5})"),
         {"0.11", "2.5", "2.50", "1", "0.1000001"},
         {"0.1", "0.10", "2.51", "-1", "0.099", "1e+17"});
  expect(schema(R"({"type":"number","exclusiveMaximum":1})"),
         {"0.9999999999999999", "-5e+20", "1e-07"}, {"0.99999999999999999999", "1", "1e+16"});
  expect(schema(R"({"type":"number","multipleOf":0.01})"), {"1", "0.25", "-3.10"},
         {"0.001", "1.005"});
  expect(schema(R"({"type":"integer","minimum":10,"maximum":40,"multipleOf":7})"), {"14", "35"},
         {"7", "42", "15"});
}

TEST(ConstraintSchema, CombinationsAreKept) {
  expect(
      schema(
          R"({"allOf":[{"properties":{"a":{"minimum":3}},"required":["a"]},{"properties":{"a":{"type":"integer"},"b":{"type":"null"}}}]})"),
      {R"({"a":3})", R"({"a":4,"b":null})"}, {R"({"a":2})", R"({"a":3.5})", R"({"b":null})"});
  expect(schema(R"({"properties":{"k":{"enum":["a","b"]},"x":{"type":"integer"}},"required":["k"],
                    "if":{"properties":{"k":{"const":"a"}}},"then":{"required":["x"]}})"),
         {R"({"k":"a","x":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"x":1})"});
  expect(schema(R"({"type":["string","null"],"not":{"enum":["x",null]}})"), {R"("y")", R"("")"},
         {R"("x")", "null"});
  expect(
      schema(R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":2})"),
      {R"(["c","a"])", R"(["a","b","c"])"}, {R"(["a","a"])", R"(["a"])"});
  expect(
      schema(
          R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"maxContains":1})"),
      {"[5]", "[1,7,2]"}, {"[]", "[1]", "[5,6]"});
  expect(
      schema(
          R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":1,"maxProperties":2})"),
      {R"({"b":1})", R"({"a":1,"c":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  expect(schema(R"({"const":{"a":[1,"\u00e9"],"b":{}}})"),
         {"{\"a\":[1,\"\xc3\xa9\"],\"b\":{}}", R"({"a": [1, "\u00e9"], "b": {}})"},
         {R"({"a":[1],"b":{}})"});
  expect(
      schema(
          R"({"$defs":{"n":{"properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})"),
      {R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
  expect(schema(R"({"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"null"}}})"), {"null"},
         {"1"});
  expect(
      schema(
          R"({"type":"object","properties":{"a b":{"type":"null"}},"patternProperties":{"^a":{},"b$":{"type":["null","integer"]}}})"),
      {R"({"a b":null,"xb":1,"ab":2})"}, {R"({"a b":1})", R"({"ab":"x"})", R"({"c":1})"});
}

TEST(ConstraintSchema, FormatsAreKept) {
  expect(schema(R"({"type":"string","format":"date"})"), {R"("2024-02-29")"},
         {R"("2023-02-29")", R"("2024-13-01")"});
  expect(schema(R"({"type":"string","format":"date-time"})"), {R"("2024-02-29T23:59:59.5Z")"},
         {R"("2024-02-29 10:00:00")"});
  expect(schema(R"({"type":"string","format":"ipv6"})"),
         {R"("::1")", R"("2001:db8::8a2e:370:7334")"}, {R"("1::2::3")"});
  expect(schema(R"({"type":"string","format":"email","maxLength":12})"), {R"("a.b@c.org")"},
         {R"("a@b@c")", R"("long.name@c.org")"});
  expect(schema(R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})"),
         {R"("https://a.org/b?c#d")"}, {R"("a b")", R"("")"});
  for (const char* unchecked : {"something", "byte", "base64"}) {
    expect(schema(Json{{"type", "string"}, {"format", unchecked}}.dump()), {R"("x y")"}, {"1"});
  }
}

TEST(ConstraintSchema, RefusalsNameThePlaceAndWhatToDo) {
  EXPECT_EQ(
      refusal(
          R"({"properties":{"a":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}})"),
      "the JSON schema at #/properties/a has uniqueItems, which is supported only for items of at "
      "most 8 "
      "constant values: remove it, or list the values by enum");
  EXPECT_EQ(refusal(R"({"items":{"$ref":"#/$defs/x"}})"),
            "the JSON schema at #/items refers to \"#/$defs/x\", which leads nowhere");
  EXPECT_EQ(refusal(R"({"$ref":"#"})"), "the JSON schema at # refers to itself without end");
  EXPECT_EQ(refusal(R"({"type":"text"})"),
            "the JSON schema at # has the unknown type \"text\": should be null, boolean, integer, "
            "number, string, "
            "array or object");
  EXPECT_EQ(refusal(R"({"minimum":3,"maximum":2,"type":"integer"})"),
            "the JSON schema at # allows no value at all");
  EXPECT_NE(refusal(R"({"pattern":"(a"})").find("has an unclosed ( at offset 0"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"pattern":"(a)\\1"})").find("refers back to a group"), std::string::npos);
  EXPECT_EQ(
      refusal({.kind = ConstraintSpec::Kind::kStructuralTag,
               .text = R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":
                         {"properties":{"x":{"pattern":"a\\ud800"}}}}})"}),
      R"(the JSON schema at #/properties/x: the pattern "a\\ud800" has \ud800 at offset 1, which )"
      "is half of a surrogate pair without the other half");
  EXPECT_NE(refusal(R"({"not":{"additionalProperties":{"type":"integer"}},"type":"object"})")
                .find("is negated"),
            std::string::npos);
}

// Tokens of many bytes against the same bytes one by one, along random walks: the masks of
// automata, of counted characters near their bounds, and of counted repetitions.
TEST(ConstraintSchema, MasksAgreeWithSingleBytes) {
  std::mt19937 random(5);
  World& all = world();
  const auto bytes_allow = [&](Constraint& constraint, const std::string& token) {
    std::int64_t taken = 0;
    bool allowed = !token.empty();
    for (const char c : token) {
      if (constraint.finished() || !constraint.allows(all.token_of(c))) {
        allowed = false;
        break;
      }
      constraint.accept(all.token_of(c));
      ++taken;
    }
    constraint.rollback(taken);
    return allowed;
  };
  for (
      const char* text :
      {R"({"type":"string","minLength":2,"maxLength":4})",
       R"({"type":"array","items":{"type":"string","maxLength":3}})",
       R"({"properties":{"a":{"type":"string","minLength":1},"id":{"type":"string","maxLength":6}},"required":["a","id"]})",
       R"({"type":"array","items":{"type":"integer"},"minItems":30})",
       R"({"type":"string","pattern":"^[a-z ]+$","maxLength":5})",
       R"({"type":"object","additionalProperties":{"type":["number","null"]}})"}) {
    for (int round = 0; round < 4; ++round) {
      Constraint constraint = all.start(schema(text));
      Constraint single = all.start(schema(text));
      for (int step = 0; step < 14 && !constraint.finished(); ++step) {
        std::vector<std::size_t> allowed;
        for (std::size_t id = 0; id < all.bytes.size(); ++id) {
          if (all.bytes[id].empty()) continue;
          const bool bit = constraint.allows(static_cast<std::int32_t>(id));
          EXPECT_EQ(bit, bytes_allow(single, all.bytes[id]))
              << text << " : token '" << all.bytes[id] << "'";
          if (bit) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        const std::size_t id = allowed[random() % allowed.size()];
        constraint.accept(static_cast<std::int32_t>(id));
        for (const char c : all.bytes[id]) single.accept(all.token_of(c));
      }
    }
  }
}

// Requests that failed in the world, each with the text that must be answered.
TEST(ConstraintSchema, RequestsOfReports) {
  const std::filesystem::path shared = test::shared_dir();
  if (shared.empty() || !std::filesystem::exists(shared / "reports")) {
    GTEST_SKIP() << "no shared/reports (BITLOOM_DATA): 14 requests were not checked";
  }
  int seen = 0;
  for (const char* folder : {"array-without-items", "length-bounds-forbid-escapes", "oneof-overlap",
                             "pattern-is-not-searched"}) {
    std::ifstream lines(shared / "reports" / folder / "in.jsonl");
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      const OrderedJson request = parse_ordered_json(line, "line");
      const OrderedJson& constraints = request["body"]["constraints"];
      const std::string text = constraints[0]["guided_choice"][0];
      const ConstraintSpec spec = read_constraint(constraints[1], "request");
      EXPECT_EQ(world().takes(spec, text), std::string_view(folder) != "oneof-overlap")
          << folder << ", " << request["custom_id"] << ": " << text;
      ++seen;
    }
  }
  EXPECT_GE(seen, 10);
  const auto read = [&](const char* path) {
    return schema(read_file(shared / "reports" / path, 1 << 16));
  };
  expect(read("additional-items-without-effect/schema.json"), {R"({"x":[1,2]})"},
         {R"({"x":["a"]})"});
  expect(read("additional-items-without-effect/http-url.json"), {R"({"link":"https://a.org/"})"},
         {R"({"link":"a b"})"});
  expect(read("additional-items-without-effect/required.json"), {R"({"a":"x","b":null})"},
         {R"({"a":"x"})"});
  expect(read("endless-json-whitespace/schema.json"), {"{\n  \"code\": \"x\"\n}"},
         {"{\"code\": \"x\"\n\n}", "{\"code\":\"x\"  }"});
}

}  // namespace
}  // namespace bl
