// The outputs in the shared folder tool-calls and their right readings, under the rules of its
// README: whole, byte by byte, and in random pieces.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "reading.h"
#include "shared_cases.h"

namespace bl {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

// Exact for integers; true is not 1, but 1 is 1.0.
bool same_value(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items()) {
      if (!b.contains(key) || !same_value(value, b.at(key))) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
  }
  if (a.is_number() && b.is_number()) return a == b;
  return a.type() == b.type() && a == b;
}

bool same_content(const Json& wanted, const std::string& content) {
  if (!wanted.is_array()) {
    return trimmed(wanted.is_null() ? "" : wanted.get<std::string>()) == trimmed(content);
  }
  std::string_view rest = content;
  for (const Json& part : wanted) {
    const std::string text = trimmed(part.get<std::string>());
    const std::size_t begin = std::min(rest.find_first_not_of(" \t\r\n"), rest.size());
    rest.remove_prefix(begin);
    if (!rest.starts_with(text)) return false;
    rest.remove_prefix(text.size());
  }
  return trimmed(rest).empty();
}

std::optional<Json> whole_json(const std::string& text) {
  try {
    return parse_json(text, "arguments");
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool matches(const Json& wanted, const ParsedAnswer& answer) {
  const Json& reasoning = wanted.at("reasoning_content");
  if (trimmed(reasoning.is_null() ? "" : reasoning.get<std::string>()) !=
      trimmed(answer.reasoning)) {
    return false;
  }
  if (!same_content(wanted.at("content"), answer.content)) return false;
  const Json& calls = wanted.at("tool_calls");
  if (calls.size() != answer.calls.size()) return false;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const ParsedCall& call = answer.calls[i];
    if (calls[i].at("name") != call.name) return false;
    const std::optional<Json> arguments = whole_json(call.arguments);
    const Json& right = calls[i].at("arguments");
    if (right.is_null() != !arguments.has_value()) return false;
    if (arguments && !same_value(right, *arguments)) return false;
    if (call.complete != arguments.has_value()) return false;
  }
  return true;
}

struct Count {
  int right = 0;
  int all = 0;
};

TEST(SharedCases, AreReadAsTheyShouldBe) {
  if (!test::SharedCases::are_here()) GTEST_SKIP() << "no shared tool-calls (BITLOOM_DATA)";
  std::map<std::string, std::map<std::string, Count>> counts;
  int wrong = 0;
  int cut_wrong = 0;
  test::SharedCases cases;
  while (const std::optional<test::SharedCase> next = cases.next()) {
    const Json& test = next->document;
    const auto parser = [&] { return next->parser(); };
    const std::string text = test.at("text").get<std::string>();
    const std::vector<AnswerEvent> events = test::read_whole(parser(), text);
    const ParsedAnswer answer = test::parsed(events);
    bool right = matches(test.at("expected"), answer);
    for (const Json& also : test.value("also", Json::array())) {
      right = right || matches(also, answer);
    }
    const std::string kind = test.at("kind").get<std::string>();
    Count& count = counts[test.at("family")][kind.substr(0, kind.find('/'))];
    ++count.all;
    count.right += right ? 1 : 0;
    if (!right && ++wrong <= 60) {
      std::cout << "case " << test.at("id") << ' ' << test.at("template") << ' ' << kind
                << " read as " << next->format->name << "\n  text " << test.at("text")
                << "\n  expected " << json_text(test.at("expected")) << "\n  got\n"
                << test::shown(events);
    }
    const std::uint64_t seed = test.at("id").get<std::uint64_t>();
    const bool same = test::read_bytes(parser(), text) == events &&
                      test::read_pieces(parser(), text, seed) == events &&
                      test::read_pieces(parser(), text, seed + 1'000'000) == events;
    if (!same && ++cut_wrong <= 5) ADD_FAILURE() << "case " << test.at("id") << " depends on cuts";
  }

  std::map<std::string, Count> all;
  for (const auto& [family, kinds] : counts) {
    std::cout << family;
    for (const auto& [kind, count] : kinds) {
      std::cout << "  " << kind << ' ' << count.right << '/' << count.all;
      all[kind].right += count.right;
      all[kind].all += count.all;
    }
    std::cout << '\n';
  }
  for (const auto& [name, format] : cases.formats()) {
    std::cout << name << ": " << format << '\n';
  }
  std::cout << "regular " << all["regular"].right << '/' << all["regular"].all << ", irregular "
            << all["irregular"].right << '/' << all["irregular"].all << '\n';
  EXPECT_GE(all["regular"].right * 100, all["regular"].all * 98);
  EXPECT_GE(all["irregular"].right * 100, all["irregular"].all * 90);
  EXPECT_EQ(cut_wrong, 0);
}

}  // namespace
}  // namespace bl
