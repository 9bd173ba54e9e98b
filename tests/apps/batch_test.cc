// bitloom batch: whatever stops it, every request is answered once.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class Batch : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_tiny_model("batch").string();
    work_ = scratch_dir("batch-work");
  }
  static Json completion(int number) {
    return {{"custom_id", "request-" + std::to_string(number)},
            {"method", "POST"},
            {"url", "/v1/completions"},
            {"body",
             {{"model", "tiny"},
              {"prompt", "thread " + std::to_string(number % 5)},
              {"max_tokens", 5 + number},
              {"temperature", number % 2}}}};
  }
  std::string write(const std::vector<Json>& lines) {
    std::string text;
    for (const Json& line : lines) text += json_text(line) + "\n";
    const fs::path path = work_ / "in.jsonl";
    write_file_atomically(path, text);
    return path.string();
  }
  std::string out() const { return (work_ / "out.jsonl").string(); }
  ProgramResult run(const std::string& input, const std::string& prefix = "",
                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"batch",     input, "-o", out(), "-m", model_,
                                   "--backend", "ref", "-b", "4",   "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words, "", prefix);
  }
  // Answers by custom_id, without what differs from run to run.
  std::map<std::string, Json> answers() {
    std::map<std::string, Json> found;
    std::ifstream file(out());
    for (std::string line; std::getline(file, line);) {
      Json answer = parse_json(line, "answer");
      answer["response"]["body"].erase("created");
      answer["response"]["body"].erase("usage");
      const auto id = answer["custom_id"].get<std::string>();
      EXPECT_TRUE(found.emplace(id, answer).second) << id << " twice";
    }
    return found;
  }
  std::string model_;
  fs::path work_;
};

TEST_F(Batch, GoesOnWhereItWasStopped) {
  std::vector<Json> lines;
  for (int i = 0; i < 12; ++i) lines.push_back(completion(i));
  const std::string input = write(lines);
  const ProgramResult whole = run(input);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out, "");
  const auto expected = answers();
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_EQ(expected.at("request-3").at("response").at("status_code"), 200);

  // A kill leaves whole lines and at most a piece of one.
  const std::string text = read_file(out());
  for (const std::size_t left :
       {std::size_t{0}, text.size() / 3, text.size() / 2 + 7, text.size() - 1, text.size()}) {
    write_file_atomically(out(), text.substr(0, left));
    const ProgramResult rest = run(input);
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(answers(), expected) << left;
  }
}

// Killed for good, at whatever moment, as often as it takes.
TEST_F(Batch, KilledInTheMiddleItLosesAndRepeatsNothing) {
  std::vector<Json> lines;
  for (int i = 0; i < 60; ++i) lines.push_back(completion(i));
  const std::string input = write(lines);
  ASSERT_EQ(run(input).status, 0);
  const auto expected = answers();
  ASSERT_EQ(expected.size(), 60u);
  fs::remove(out());
  for (const char* seconds : {"0.05", "0.1", "0.15", "0.2", "0.3", "0.4", "0.6"}) {
    run(input, std::string("timeout -s KILL ") + seconds + " ");
  }
  ASSERT_EQ(run(input).status, 0);
  EXPECT_EQ(answers(), expected);
}

TEST_F(Batch, AFullDiskIsOneLineAndLosesNothing) {
  std::vector<Json> lines;
  for (int i = 0; i < 60; ++i) lines.push_back(completion(i));
  const std::string input = write(lines);
  const ProgramResult full = run(input, "trap '' XFSZ; ulimit -f 16; ");
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("cannot write " + out()), std::string::npos) << full.err;
  EXPECT_EQ(std::count(full.err.begin(), full.err.end(), '\n'), 1) << full.err;
  EXPECT_GT(fs::file_size(out()), 0u);
  // Room again: it goes on.
  ASSERT_EQ(run(input).status, 0);
  EXPECT_EQ(answers().size(), 60u);
}

TEST_F(Batch, APresetFillsWhatARequestLeavesOpen) {
  Json open = completion(1);
  open["body"].erase("temperature");
  Json own = completion(2);
  own["body"]["temperature"] = 1.5;
  own["body"]["top_p"] = 1;
  const std::string input = write({open, own});
  ASSERT_EQ(run(input, "", {"--preset", "greedy"}).status, 0);
  const auto found = answers();
  fs::remove(out());
  Json greedy = open;
  greedy["body"]["temperature"] = 0;
  ASSERT_EQ(run(write({greedy, own})).status, 0);
  EXPECT_EQ(answers(), found);
  const ProgramResult wrong = run(input, "", {"--preset", "gredy"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("did you mean greedy?"), std::string::npos) << wrong.err;
}

TEST_F(Batch, EveryFeatureOfTheEngineCanBeAsked) {
  const Json plain = completion(8);
  Json banned = completion(10);
  banned["body"]["prompt"] = plain["body"]["prompt"];
  banned["body"]["max_tokens"] = 40;
  banned["body"]["temperature"] = 0;
  Json first = banned;
  first["custom_id"] = "plain";
  ASSERT_EQ(run(write({first})).status, 0);
  const auto text = answers().at("plain").at("response").at("body").at("choices").at(0).at("text");
  // A plain letter that the model likes to say.
  std::string letter;
  for (const char c : text.get<std::string>()) {
    if (letter.empty() && c > ' ' && c < 127) letter = c;
  }
  ASSERT_FALSE(letter.empty()) << text;
  banned["body"]["banned_strings"] = {letter};
  Json healed = completion(12);
  healed["body"]["token_healing"] = true;
  Json guided = completion(14);
  guided["body"]["cfg_scale"] = 2.5;
  guided["body"]["negative_prompt"] = "knot";
  fs::remove(out());
  ASSERT_EQ(run(write({banned, healed, guided})).status, 0);
  const auto found = answers();
  for (const auto& [id, answer] : found) {
    EXPECT_EQ(answer.at("response").at("status_code"), 200) << json_text(answer);
  }
  EXPECT_EQ(json_text(found.at("request-10").at("response").at("body").at("choices"))
                .find("\"text\":\"" + letter),
            std::string::npos);
}

TEST_F(Batch, WhatIsWrongWithARequestIsItsAnswer) {
  Json no_prompt = completion(1);
  no_prompt["body"].erase("prompt");
  Json hot = completion(2);
  hot["body"]["top_p"] = 7;
  Json streamed = completion(3);
  streamed["body"]["stream"] = true;
  Json foreign = completion(4);
  foreign["body"]["prompt"] = {1, 2, 99999};
  Json long_one = completion(5);
  long_one["body"]["prompt"] = std::string(5000, 'x');
  Json none = completion(6);
  none["body"]["max_tokens"] = 0;
  Json broken_schema = completion(7);
  broken_schema["body"]["guided_regex"] = "(((";
  std::vector<Json> lines{completion(0), no_prompt, hot,  streamed,
                          foreign,       long_one,  none, broken_schema};
  for (const double n : {-1.0, 0.0, 3e8, 1e11}) {
    lines.push_back(completion(static_cast<int>(lines.size())));
    lines.back()["body"]["n"] = n;
  }
  const ProgramResult result = run(write(lines));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto found = answers();
  ASSERT_EQ(found.size(), lines.size());
  for (const auto& [id, answer] : found) {
    EXPECT_EQ(answer.at("response").at("status_code"), id == "request-0" ? 200 : 400) << id;
  }
}

TEST_F(Batch, ChatWithSeveralChoices) {
  Json chat = completion(1);
  chat["url"] = "/v1/chat/completions";
  chat["body"] = {{"model", "tiny"},
                  {"messages", {{{"role", "user"}, {"content", "hello"}}}},
                  {"n", 3},
                  {"logprobs", true},
                  {"top_logprobs", 2},
                  {"max_tokens", 6}};
  ASSERT_EQ(run(write({chat})).status, 0);
  const Json body = answers().at("request-1").at("response").at("body");
  EXPECT_EQ(body.at("object"), "chat.completion");
  ASSERT_EQ(body.at("choices").size(), 3u);
  for (const Json& choice : body.at("choices")) {
    EXPECT_EQ(choice.at("message").at("role"), "assistant");
    EXPECT_EQ(choice.at("logprobs").at("content").at(0).at("top_logprobs").size(), 2u);
  }
}

TEST_F(Batch, WrongFilesAreRefusedBeforeAnythingRuns) {
  Json other_url = completion(1);
  other_url["url"] = "/v1/embeddings";
  const std::vector<std::vector<Json>> wrong{
      {other_url}, {completion(1), completion(1)}, {Json::array()}};
  for (const std::vector<Json>& lines : wrong) {
    const ProgramResult result = run(write(lines));
    EXPECT_EQ(result.status, 1);
    EXPECT_FALSE(fs::exists(out()));
  }
  // Something else than answers is not written into.
  write_file_atomically(out(), "notes of mine\n");
  EXPECT_EQ(run(write({completion(1)})).status, 1);
  EXPECT_EQ(read_file(out()), "notes of mine\n");
}

TEST_F(Batch, WhatIsNoAnswerIsNeverCutOff) {
  // The last line of each has no end, as a kill leaves it.
  for (const std::string text :
       {"notes of mine", R"({"custom_id": "mine"})", R"({"custom_id":"a","body":{}})", "[1, 2"}) {
    write_file_atomically(out(), text);
    const ProgramResult result = run(write({completion(1)}));
    EXPECT_EQ(result.status, 1) << text;
    EXPECT_EQ(read_file(out()), text);
  }
  write_file_atomically(out(), R"({"custom_id":"a","err)");
  EXPECT_EQ(run(write({completion(1)})).status, 0);
  EXPECT_EQ(answers().size(), 1u);
  // Requests are no answers, neither in another file nor in their own.
  const std::string input = write({completion(1), completion(2)});
  const std::string before = read_file(input);
  fs::copy_file(input, out(), fs::copy_options::overwrite_existing);
  EXPECT_EQ(run(input).status, 1);
  EXPECT_EQ(read_file(out()), before);
  const ProgramResult same = run_program({"batch", input, "-o", input, "-m", model_, "-q"});
  EXPECT_EQ(same.status, 2);
  EXPECT_EQ(read_file(input), before);
}

}  // namespace
}  // namespace bl::test
