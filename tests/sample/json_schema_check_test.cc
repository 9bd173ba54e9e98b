#include "sample/json_schema_check.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "sample/regex_dialect.h"

namespace bl {
namespace {

std::string refusal(const char* schema) {
  try {
    check_json_schema(OrderedJson::parse(schema));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonSchemaCheck, NamesThePlace) {
  EXPECT_EQ(refusal(R"({"properties":{"a":{"items":{"contains":{}}}}})"),
            "the JSON schema at #/properties/a/items has contains, which is not supported");
  EXPECT_EQ(refusal(R"({"anyOf":[true,{"prefixItems":[{},{"minimum":3}]}]})"),
            "the JSON schema at #/anyOf/1/prefixItems/1 has minimum without a type");
  EXPECT_EQ(refusal(R"({"$ref":"#/$defs/a/b","$defs":{"a":{"b":{"enum":[1],"maximum":3}}}})"),
            "the JSON schema at #/$defs/a/b has maximum beside enum, which is not supported: merge "
            "them into one");
  EXPECT_EQ(refusal(R"({"type":"object","required":["a"]})"),
            R"(the JSON schema at # requires "a", which is not among its properties)");
  EXPECT_EQ(refusal(R"({"type":"object","propertyNames":{},"patternProperties":{"^a":{}}})"),
            "the JSON schema at # has propertyNames beside patternProperties, which is not "
            "supported");
  EXPECT_EQ(refusal(R"({"type":"object","propertyNames":{},"additionalProperties":false})"),
            "the JSON schema at # has propertyNames beside additionalProperties: false, which is "
            "not supported");
}

TEST(JsonSchemaCheck, TypesBesideChoicesSayNothingNew) {
  EXPECT_EQ(refusal(R"({"type":"string","const":5})"),
            "the JSON schema at # has a type beside const, which allows other types: move the type "
            "into it");
  for (const char* schema :
       {R"({"type":"integer","enum":["a",3]})", R"({"type":"integer","enum":[3,3.5]})",
        R"({"properties":{"a":{"type":"integer","const":"no"}}})", R"({"type":[]})",
        R"({"type":"string","anyOf":[{"format":"date"},{"format":"uuid"}]})",
        R"({"type":"string","$ref":"#/$defs/d","$defs":{"d":{"maxLength":5}}})",
        R"({"type":"string","$ref":"#/$defs/d","$defs":{"d":{}}})",
        R"({"type":["string","null"],"enum":["a",null,1]})",
        R"({"type":"object","allOf":[{"type":["object","null"]}]})",
        R"({"enum":["a"],"format":"date"})",
        R"({"type":"string","pattern":"^[a-c]+$","format":"date"})"}) {
    EXPECT_NE(refusal(schema), "") << schema;
  }
  for (const char* schema :
       {R"({"type":"string","enum":["a","b"]})", R"({"type":"number","enum":[1,2.5]})",
        R"({"type":"integer","const":3.0})", R"({"type":["string","null"],"enum":["a",null]})",
        R"({"type":"object","anyOf":[{"type":"object"},{"properties":{}}]})",
        R"({"type":"string","$ref":"#/$defs/d","$defs":{"d":{"const":"x"}}})",
        R"({"type":"number","oneOf":[{"type":"integer"},{"const":0.5}]})",
        R"({"type":"string","format":"date"})", R"({"type":"boolean","const":true})"}) {
    EXPECT_EQ(refusal(schema), "") << schema;
  }
}

// Every place is looked at once, however many ways lead to it.
TEST(JsonSchemaCheck, CirclesOfChoicesEnd) {
  std::string branches;
  for (int i = 0; i < 30; ++i) branches += R"({"$ref":"#"},{"$ref":"#/$defs/b"},)";
  const std::string schema = R"({"type":"object","anyOf":[)" + branches +
                             R"({"type":"object"}],"$defs":{"b":{"anyOf":[)" + branches +
                             R"({"properties":{}}]}}})";
  EXPECT_EQ(refusal(schema.c_str()), "");
}

TEST(JsonSchemaCheck, BoundsLeaveANumber) {
  for (const char* schema :
       {R"({"type":"number","minimum":1e-7,"maximum":2e-7})",
        R"({"type":"number","minimum":-2.6e-7,"maximum":-6.3e-8})",
        R"({"type":"number","exclusiveMinimum":0.1,"maximum":0.1})",
        R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.000001})",
        R"({"type":"integer","minimum":1.2,"maximum":1.8})",
        R"({"type":["number","null"],"minimum":2,"maximum":1})"}) {
    EXPECT_NE(refusal(schema), "") << schema;
  }
  for (const char* schema :
       {R"({"type":"number","minimum":0.1,"maximum":0.1})", R"({"type":"number","minimum":1e-7})",
        R"({"type":"number","minimum":-2.6e-7,"maximum":2.6e-7})",
        R"({"type":"number","minimum":0.3,"maximum":0.300001})",
        R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":3})",
        R"({"type":"integer","minimum":-9e15,"maximum":-9e15})"}) {
    EXPECT_EQ(refusal(schema), "") << schema;
  }
}

// What no value is checked against may hold anything: names, defaults, definitions that nobody
// uses.
TEST(JsonSchemaCheck, ReadsWhatIsUsedAlone) {
  for (const char* schema :
       {R"({"properties":{"if":{"type":"null"},"not":{}},"default":{"contains":1}})",
        R"({"type":"null","$defs":{"a":{"not":{}}}})", R"({"enum":[{"not":1}]})", R"({"$ref":"#"})",
        R"({"items":{"$ref":"#"}})", "true", "false", R"({"type":"string","required":["a"]})",
        R"({"$ref":"#/$defs/missing"})", R"({"$ref":5})",
        R"({"required":5,"properties":7,"type":"object"})"}) {
    EXPECT_EQ(refusal(schema), "") << schema;
  }
}

TEST(JsonSchemaCheck, FindsSchemasInTags) {
  const auto check = [](const char* tag) { check_structural_tag(OrderedJson::parse(tag)); };
  EXPECT_NO_THROW(check(R"({"format":{"type":"json_schema","json_schema":{"type":"null"}}})"));
  EXPECT_THROW(check(R"({"format":{"elements":[{"json_schema":{"not":{}}}]}})"), Error);
  EXPECT_THROW(check(R"({"structures":[{"begin":"<","schema":{"if":{}},"end":">"}]})"), Error);
}

TEST(JsonSchemaCheck, FindsPatternsInTags) {
  const auto refused = [](const char* tag) -> std::string {
    try {
      check_structural_tag(OrderedJson::parse(tag));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(R"({"format":{"type":"regex","pattern":"a^b"}})"),
            "the pattern of the structural tag at #/format has ^ at offset 1, where it can never "
            "match: the whole text must match the expression");
  EXPECT_NE(refused(R"({"format":{"type":"tag","begin":"<","content":{"type":"or","elements":
      [{"type":"any_text"},{"type":"sequence","elements":[{"type":"regex","pattern":"a$b"}]}]},
      "end":">"}})")
                .find("at #/format/content/elements/1/elements/0 has $"),
            std::string::npos);
  EXPECT_NE(refused(R"({"format":{"type":"json_schema","style":"cohere_xml","json_schema":
      {"properties":{"x":{"type":"string","pattern":"\\ud800"}}}}})")
                .find("#/properties/x has \\ud800 at offset 0, which is half of a surrogate pair"),
            std::string::npos);
  EXPECT_EQ(refused(R"({"format":{"type":"regex","pattern":"^a$|^b$"}})"), "");
  // A text that is no pattern.
  EXPECT_EQ(refused(R"({"format":{"type":"const_string","value":"a^b","pattern":"a^b"}})"), "");
}

// A long key above many places: their names do not repeat it.
TEST(JsonSchemaCheck, LongNamesOfPlacesAreCut) {
  const std::string key(120'000, 'k');
  OrderedJson many = OrderedJson::array();
  for (int i = 0; i < 40'000; ++i) many.push_back(OrderedJson::object());
  const OrderedJson schema{{"properties", {{key, {{"prefixItems", many}}}}}};
  const OrderedJson tag{{"format", {{key, many}}}};
  const std::clock_t start = std::clock();  // processor time: others may use the machine
  EXPECT_NO_THROW(check_json_schema(schema));
  EXPECT_NO_THROW(check_structural_tag(tag));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5);
  OrderedJson wrong = schema;
  wrong["properties"][key]["not"] = OrderedJson::object();
  EXPECT_EQ(refusal(wrong.dump().c_str()),
            "the JSON schema at #/properties/… has not, which is not supported");
}

// What would be written as another number, or be taken from another place than it names.
TEST(JsonSchemaCheck, ValuesAndReferencesMeanWhatTheySay) {
  EXPECT_EQ(refusal(R"({"items":{"enum":[1,{"a":[12345678901234567890]}]}})"),
            "the JSON schema at #/items has the value 12345678901234567890, which is too large to "
            "be written exactly");
  EXPECT_NE(refusal(R"({"const":9223372036854775809})"), "");
  EXPECT_EQ(refusal(R"({"enum":[9223372036854775807,-9223372036854775808,9223372036854775808]})"),
            "");
  EXPECT_EQ(refusal(R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{},"a~1b":{"type":"null"}}})"),
            "the JSON schema at # refers to \"#/$defs/a~1b\"; references with an escape (~ or %) "
            "are not supported");
  EXPECT_NE(refusal(R"({"$ref":"#/$defs/a%20b","$defs":{"a b":{},"a%20b":{}}})"), "");
}

TEST(RegexDots, AreNoLineBreaks) {
  EXPECT_EQ(with_plain_dots("a.b\\.[.].*"), "a[^\\n\\r]b\\.[.][^\\n\\r]*");
  EXPECT_EQ(with_plain_dots(""), "");
  EXPECT_EQ(with_plain_dots("[^\\]]."), "[^\\]][^\\n\\r]");
}

}  // namespace
}  // namespace bl
