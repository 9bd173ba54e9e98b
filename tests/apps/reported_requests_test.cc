// Requests that were answered otherwise than by the servers that people come from, with the real
// model (./quickstart makes models/smollm2-135m) and the shared folder of reports.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr bool kTooSlow = BL_SANITIZED;

class ReportedRequests : public testing::Test {
 protected:
  void SetUp() override {
    if (kTooSlow) GTEST_SKIP() << "too slow with sanitizers; release runs it";
    const char* variable = std::getenv("BITLOOM_MODELS");
    const fs::path models = variable != nullptr ? fs::path(variable)
                                                : data_dir().parent_path().parent_path() / "models";
    model_ = models / "smollm2-135m";
    if (!fs::exists(model_ / "config.json")) {
      GTEST_SKIP() << "no models/smollm2-135m: run ./quickstart first";
    }
    if (shared_dir().empty() || !fs::exists(shared_dir() / "reports")) {
      GTEST_SKIP() << "the shared folder of reports is not here (BITLOOM_DATA)";
    }
  }
  // The bodies of the answers to a file of a report, by custom_id. All must be right answers.
  std::map<std::string, Json> bodies(const std::string& file, const fs::path& model) {
    const fs::path work = scratch_dir("reported-requests");
    const fs::path input = shared_dir() / "reports" / file;
    const ProgramResult result = run_program(
        {"batch", input.string(), "-o", (work / "out.jsonl").string(), "-m", model.string(), "-q"});
    EXPECT_EQ(result.status, 0) << result.err;
    std::map<std::string, Json> found;
    std::ifstream in(work / "out.jsonl");
    for (std::string line; std::getline(in, line);) {
      const Json answer = parse_json(line, "answer");
      EXPECT_EQ(answer.at("response").at("status_code"), 200) << line;
      found[answer.at("custom_id")] = answer.at("response").at("body");
    }
    return found;
  }
  std::map<std::string, Json> bodies(const std::string& file) { return bodies(file, model_); }
  static std::string text_of(const Json& body) { return body.at("choices").at(0).at("text"); }

  fs::path model_;
};

// Answers may differ in the last bits where they share steps with others.
void expect_close(const Json& a, const Json& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [token, value] : a.items()) {
    EXPECT_NEAR(value.get<double>(), b.at(token).get<double>(), 1e-3) << token;
  }
}

TEST_F(ReportedRequests, OffValuesAreTaken) {
  const auto found = bodies("off-values-refused/in.jsonl");
  ASSERT_EQ(found.size(), 4u);
  for (const auto& [id, body] : found) EXPECT_EQ(text_of(body), text_of(found.at("plain"))) << id;
}

TEST_F(ReportedRequests, DryBreakersMayComeAsText) {
  const auto found = bodies("dry-breakers-as-text/in.jsonl");
  const std::string expected = text_of(found.at("list"));
  EXPECT_EQ(expected.substr(0, 4), " yes");
  EXPECT_EQ(text_of(found.at("text")), expected);
  EXPECT_EQ(text_of(found.at("text without brackets")), expected);
  EXPECT_NE(text_of(found.at("no breakers")), expected);
}

TEST_F(ReportedRequests, WhatIsLeftOutCutsNothing) {
  const auto found = bodies("batch-fills-in-sampling-defaults/in.jsonl");
  const auto likeliest = [&](const char* id) {
    return found.at(id).at("choices").at(0).at("logprobs").at("top_logprobs").at(0);
  };
  expect_close(likeliest("nothing said"), likeliest("all said"));
  expect_close(likeliest("temperature said"), likeliest("all said"));
  EXPECT_NEAR(likeliest("nothing said").at(" blue").get<double>(), -2.25, 0.02);
  const auto first = [&](const char* id) {
    Json values;
    for (const Json& one :
         found.at(id).at("choices").at(0).at("logprobs").at("content").at(0).at("top_logprobs")) {
      values[one.at("token").get<std::string>()] = one.at("logprob");
    }
    return values;
  };
  expect_close(first("chat, nothing said"), first("chat, all said"));
}

TEST_F(ReportedRequests, PenaltiesCountTheAnswerAlone) {
  const auto found = bodies("penalties-count-the-prompt/in.jsonl");
  const auto likeliest = [&](const char* id) {
    return found.at(id).at("choices").at(0).at("logprobs").at("top_logprobs").at(0);
  };
  expect_close(likeliest("frequency 1"), likeliest("none"));
  expect_close(likeliest("presence 1"), likeliest("none"));
  // With penalties, too, an answer about a text uses the words of the text.
  for (const auto& [id, body] : bodies("penalties-count-the-prompt/long.jsonl")) {
    const std::string text = body.at("choices").at(0).at("message").at("content");
    EXPECT_NE(text.find("library"), text.npos) << id << ": " << text;
    EXPECT_NE(text.find("market"), text.npos) << id << ": " << text;
  }
}

TEST_F(ReportedRequests, ABannedStringOfOneTokenIsABannedToken) {
  std::map<std::string, std::map<std::string, int>> counts;
  std::map<std::string, int> all;
  for (const auto& [id, body] : bodies("banned-strings-favour-neighbours/in.jsonl")) {
    const std::string kind = id.substr(0, id.find(' '));
    for (const Json& choice : body.at("choices")) {
      ++counts[kind][choice.at("text").get<std::string>()];
      ++all[kind];
    }
  }
  for (const char* kind : {"string", "tokens"}) {
    EXPECT_EQ(all[kind], 1024);
    // Five standard deviations of a share of 1,024.
    EXPECT_NEAR(counts[kind][" luke"] / 1024.0, 0.113, 0.05) << kind;
    EXPECT_NEAR(counts[kind][" cool"] / 1024.0, 0.218, 0.065) << kind;
  }
}

TEST_F(ReportedRequests, ArgumentsOfToolCallsMayBeText) {
  EXPECT_EQ(bodies("tool-call-arguments-as-text/null-content.jsonl").size(), 1u);
  for (const char* name : {"items.jinja", "tojson.jinja"}) {
    const fs::path model = scratch_dir("reported-template");
    for (const auto& entry : fs::directory_iterator(model_)) {
      fs::create_symlink(fs::absolute(entry.path()), model / entry.path().filename());
    }
    fs::remove(model / "chat_template.jinja");
    fs::copy_file(shared_dir() / "reports" / "tool-call-arguments-as-text" / name,
                  model / "chat_template.jinja");
    const auto found = bodies("tool-call-arguments-as-text/in.jsonl", model);
    ASSERT_EQ(found.size(), 2u) << name;
    EXPECT_EQ(found.at("as OpenAI writes it").at("usage").at("prompt_tokens"),
              found.at("as an object").at("usage").at("prompt_tokens"))
        << name;
  }
}

}  // namespace
}  // namespace bl::test
