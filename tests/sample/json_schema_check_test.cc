#include "sample/json_schema_check.h"

#include <gtest/gtest.h>

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
            "the JSON schema at #/$defs/a/b has maximum beside enum, which is not supported: put "
            "both into one of them");
  EXPECT_EQ(refusal(R"({"type":"object","required":["a"]})"),
            R"(the JSON schema at # requires "a", which is not among its properties)");
  EXPECT_EQ(refusal(R"({"type":"object","propertyNames":{},"patternProperties":{"^a":{}}})"),
            "the JSON schema at # has propertyNames beside patternProperties, which is not "
            "supported");
  EXPECT_EQ(refusal(R"({"type":"object","propertyNames":{},"additionalProperties":false})"),
            "the JSON schema at # has propertyNames beside additionalProperties: false, which is "
            "not supported");
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
  const auto check = [](const char* tag) { check_tag_schemas(OrderedJson::parse(tag)); };
  EXPECT_NO_THROW(check(R"({"format":{"type":"json_schema","json_schema":{"type":"null"}}})"));
  EXPECT_THROW(check(R"({"format":{"elements":[{"json_schema":{"not":{}}}]}})"), Error);
  EXPECT_THROW(check(R"({"structures":[{"begin":"<","schema":{"if":{}},"end":">"}]})"), Error);
}

TEST(RegexAnchors, StandWhereAlternativesBeginAndEnd) {
  for (const char* fine :
       {"", "^", "$", "^a$", "^a$|^b$", "(^a|b$)|(?:^c)", "[^$]", "\\^\\$", "[a\\]^$]"}) {
    EXPECT_TRUE(anchors_end_alternatives(fine)) << fine;
  }
  for (const char* wrong : {"a^", "$a", "a^b", "a$b", "(a^)", "a:^b", "^^", "$$"}) {
    EXPECT_FALSE(anchors_end_alternatives(wrong)) << wrong;
  }
}

TEST(RegexDots, AreNoLineBreaks) {
  EXPECT_EQ(with_plain_dots("a.b\\.[.].*"), "a[^\\n\\r]b\\.[.][^\\n\\r]*");
  EXPECT_EQ(with_plain_dots(""), "");
  EXPECT_EQ(with_plain_dots("[^\\]]."), "[^\\]][^\\n\\r]");
}

}  // namespace
}  // namespace bl
