// Outputs of models that were damaged at random are read the same, wherever they are cut. A run
// without orders takes a sample; tools/fuzz_counts says how many to take:
//   BITLOOM_MUTATIONS   damaged outputs, each cut at one random token
//   BITLOOM_ALL_CUTS    damaged outputs that are cut at every token

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

#include "base/json.h"
#include "reading.h"
#include "shared_cases.h"
#include "toolcall/bare_value.h"

namespace bl {
namespace {

std::int64_t number_of(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

enum class CharacterKind { kLetter, kDigit, kBlank, kOther };

CharacterKind kind_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (std::isalpha(byte) != 0 || byte >= 0x80) return CharacterKind::kLetter;
  if (std::isdigit(byte) != 0) return CharacterKind::kDigit;
  return std::isspace(byte) != 0 ? CharacterKind::kBlank : CharacterKind::kOther;
}

// Where tokens begin, about as tokenizers have it: a word with the blank before it, a number, a run
// of punctuation.
std::vector<std::size_t> token_begins(std::string_view text) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const CharacterKind before = kind_of(text[i - 1]);
    const bool joins_word = text[i - 1] == ' ' && kind_of(text[i]) == CharacterKind::kLetter;
    if (kind_of(text[i]) != before && !joins_word) begins.push_back(i);
  }
  return begins;
}

// Damages texts at random, with pieces of other ones.
class Damage {
 public:
  Damage(const std::vector<test::SharedCase>& cases, std::uint64_t seed)
      : cases_(cases), random_(seed) {}

  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  std::string apply(std::string text) {
    for (std::size_t i = 1 + below(4); i > 0; --i) text = once(std::move(text));
    return text;
  }

 private:
  std::string once(std::string text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t count = std::min(text.size() - at, below(20));
    switch (below(8)) {
      case 0:
        return text.erase(at, count);
      case 1:
        return text.insert(at, text.substr(at, count));
      case 2:
        return text.substr(0, at);
      case 3:
        return text.insert(at, piece_of_another());
      case 4:
        return text.replace(at, count, piece_of_another());
      case 5:
        return text.substr(0, at) + another().substr(0, below(200));
      case 6:
        return text.insert(at, 1, static_cast<char>(below(256)));
      default:
        constexpr const char* kMarks[] = {"{", "}", "[", "]",  "\"",    "\\",       ",",
                                          ":", "<", ">", "\n", "\\u12", "\xe2\x82", "1e"};
        return text.insert(at, kMarks[below(std::size(kMarks))]);
    }
  }
  const std::string& another() { return cases_[below(cases_.size())].text(); }
  // From the beginning of a token on, so that whole markers get to other places.
  std::string piece_of_another() {
    const std::string& other = another();
    const std::vector<std::size_t> begins = token_begins(other);
    const std::size_t begin = begins.empty() ? 0 : begins[below(begins.size())];
    return other.substr(begin, 1 + below(30));
  }

  const std::vector<test::SharedCase>& cases_;
  std::mt19937_64 random_;
};

std::vector<AnswerEvent> read_in_two(AnswerParser parser, std::string_view text, std::size_t cut) {
  std::vector<AnswerEvent> events = parser.feed(text.substr(0, cut));
  for (AnswerEvent& event : parser.feed(text.substr(cut))) events.push_back(std::move(event));
  for (AnswerEvent& event : parser.finish()) events.push_back(std::move(event));
  return test::joined(events);
}

// A call is complete exactly where its arguments are whole JSON.
bool is_consistent(const std::vector<AnswerEvent>& events) {
  const ParsedAnswer answer = test::parsed(events);
  return std::all_of(answer.calls.begin(), answer.calls.end(), [](const ParsedCall& call) {
    return call.complete == is_whole_json(call.arguments);
  });
}

class MutatedOutputs : public testing::Test {
 protected:
  // Reads `count` damaged outputs whole and cut at tokens: at one, or at each.
  void read(std::int64_t count, bool at_every_token, std::uint64_t seed) {
    Damage damage(cases_, seed);
    int wrong = 0;
    std::int64_t cuts = 0;
    for (std::int64_t i = 0; i < count && wrong < 5; ++i) {
      const test::SharedCase& chosen = cases_[damage.below(cases_.size())];
      const std::string text = damage.apply(chosen.text());
      const std::vector<AnswerEvent> whole = test::read_whole(chosen.parser(), text);
      std::vector<std::size_t> places = token_begins(text);
      if (!at_every_token && !places.empty()) places = {places[damage.below(places.size())]};
      bool is_same = is_consistent(whole);
      for (const std::size_t place : places) {
        is_same = is_same && read_in_two(chosen.parser(), text, place) == whole;
        ++cuts;
      }
      if (is_same) continue;
      ++wrong;
      ADD_FAILURE() << chosen.format->name << ", damaged output " << i << " of seed " << seed
                    << ": " << Json(text).dump(-1, ' ', true, Json::error_handler_t::replace)
                    << "\nwhole\n"
                    << test::shown(whole);
    }
    std::cout << count << " damaged outputs, " << cuts << " cuts\n";
  }
  void SetUp() override {
    if (!test::SharedCases::are_here()) GTEST_SKIP() << "no shared tool-calls (BITLOOM_DATA)";
    reader_.emplace();
    while (std::optional<test::SharedCase> next = reader_->next())
      cases_.push_back(std::move(*next));
  }

  std::optional<test::SharedCases> reader_;
  std::vector<test::SharedCase> cases_;
};

TEST_F(MutatedOutputs, AreReadTheSameCutAtOneToken) {
  read(number_of("BITLOOM_MUTATIONS", 5000), false, 1);
}

TEST_F(MutatedOutputs, AreReadTheSameCutAtEveryToken) {
  read(number_of("BITLOOM_ALL_CUTS", 100), true, 2);
}

}  // namespace
}  // namespace bl
