#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace bl::test {
namespace {

TEST(OrderedJson, KeepsTheOrderOfKeys) {
  const OrderedJson value = parse_ordered_json(
      R"({"z": [1, {"b": null, "a": -2}, []], "a": {"y": 1.5, "x": {}}, "m": true, "l": "é"})",
      "test");
  EXPECT_EQ(json_text(value),
            R"({"z":[1,{"b":null,"a":-2},[]],"a":{"y":1.5,"x":{}},"m":true,"l":"é"})");
  EXPECT_EQ(json_text(parse_ordered_json(" 18446744073709551615 ", "test")),
            "18446744073709551615");
}

TEST(OrderedJson, LastValueOfAKeyStandsAtItsFirstPlace) {
  EXPECT_EQ(
      json_text(parse_ordered_json(
          R"({"a": 1, "b": [1], "a": 2, "c": {"x": 1, "x": {"y": 2}}, "a": 3, "b": 4})", "test")),
      R"({"a":3,"b":4,"c":{"x":{"y":2}}})");
}

TEST(Json, IsShownCutBetweenCharacters) {
  EXPECT_EQ(json_shown(Json("short")), "\"short\"");
  EXPECT_EQ(json_shown(Json(std::string(58, 'a'))), '"' + std::string(58, 'a') + '"');
  EXPECT_EQ(json_shown(Json(std::string(59, 'a'))), '"' + std::string(59, 'a') + "…");
  for (int before = 55; before < 60; ++before) {
    const std::string whole =
        json_shown(Json(std::string(static_cast<std::size_t>(before), 'a') + "𝄞𝄞𝄞"));
    const int fits = before + 1 + 4 <= 60 ? 1 : 0;
    EXPECT_EQ(whole,
              '"' + std::string(static_cast<std::size_t>(before), 'a') + (fits > 0 ? "𝄞…" : "…"))
        << before;
  }
}

TEST(OrderedJson, SaysWhatIsWrong) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "1e999", "{\"a\": 1}}", "\"\xff\""}) {
    try {
      parse_ordered_json(text, "test");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("test: not valid JSON: "), std::string::npos);
    }
  }
}

// By search before each key these would take minutes.
TEST(OrderedJson, ManyKeysAreNoTrouble) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i)
    text += "\"key" + std::to_string(i) + "\": " + std::to_string(i) + ",";
  text += "\"key7\": 0}";
  EXPECT_EQ(parse_ordered_json(text, "test").size(), 300000u);
}

}  // namespace
}  // namespace bl::test
