// bitloom batch answers every request once, whatever stops it.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <fstream>
#include <map>

#include "../engine/tiny_model.h"
#include "../model/adapter_files.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
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
  // Returns answers by custom_id, without the members that differ from run to run.
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
  // Returns the body of the answer to a file that has only this line.
  Json body_of(const Json& line, const std::vector<std::string>& more = {}) {
    fs::remove(out());
    const ProgramResult result = run(write({line}), "", more);
    EXPECT_EQ(result.status, 0) << result.err;
    return answers().begin()->second.at("response").at("body");
  }
  Json choice_of(const Json& line, const std::vector<std::string>& more = {}) {
    return body_of(line, more).at("choices").at(0);
  }
  std::string text_of(const Json& line, const std::vector<std::string>& more = {}) {
    return choice_of(line, more).at("text").get<std::string>();
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

  // A killed run leaves whole lines and at most a part of one.
  const std::string text = read_file(out());
  for (const std::size_t left :
       {std::size_t{0}, text.size() / 3, text.size() / 2 + 7, text.size() - 1, text.size()}) {
    write_file_atomically(out(), text.substr(0, left));
    const ProgramResult rest = run(input);
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(answers(), expected) << left;
  }
}

// Runs are killed at several moments, and then one runs to the end.
TEST_F(Batch, KilledInTheMiddleItLosesAndRepeatsNothing) {
  std::vector<Json> lines;
  for (int i = 0; i < 60; ++i) lines.push_back(completion(i));
  const std::string input = write(lines);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(input).status, 0);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  const auto expected = answers();
  ASSERT_EQ(expected.size(), 60u);
  fs::remove(out());
  // With --foreground, timeout does not kill itself too: it waits until the program has ended,
  // which might otherwise still hold the file when the next run begins.
  for (const double share : {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9}) {
    run(input, fmt::format("timeout --foreground -s KILL {:.3f} ", share * whole.count()));
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
  // There is room again, so the next run continues.
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

TEST_F(Batch, ABannedStringIsNowhere) {
  Json banned = completion(10);
  banned["body"]["max_tokens"] = 60;
  const std::string plain = text_of(banned);
  // A letter that the model says often, not only at the beginning.
  std::string letter;
  for (const char c : plain) {
    if (letter.empty() && std::isalpha(static_cast<unsigned char>(c))) letter = c;
  }
  ASSERT_FALSE(letter.empty()) << plain;
  const char other = static_cast<char>(letter[0] ^ 0x20);
  banned["body"]["banned_strings"] = {letter};
  const std::string text = text_of(banned);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find(letter), text.npos) << text;
  EXPECT_EQ(text.find(other), text.npos) << text;
}

TEST_F(Batch, HealingGoesOnWithTheWord) {
  // A token that no text is encoded to, since words are encoded as letters; it replaces byte 1.
  Json tokenizer = read_json_file(fs::path(model_) / "tokenizer.json");
  Json& vocab = tokenizer["model"]["vocab"];
  vocab.erase("\u0101");
  vocab["threadbare"] = 1;
  write_file_atomically(fs::path(model_) / "tokenizer.json", json_text(tokenizer));
  Json line = completion(12);
  line["body"]["prompt"] = "a thread";
  line["body"]["logit_bias"] = {{"1", 100}};
  line["body"]["max_tokens"] = 2;
  line["body"]["logprobs"] = 1;
  EXPECT_EQ(text_of(line), "threadbarethreadbare");
  line["body"]["token_healing"] = true;
  const Json choice = choice_of(line);
  EXPECT_EQ(choice.at("text"), "barethreadbarethreadbare");
  const Json& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens"), (Json{"threadbare", "threadbare", "threadbare"}));
  EXPECT_EQ(logprobs.at("text_offset"), (Json{0, 4, 14}));
}

TEST_F(Batch, GuidanceIsTheEngines) {
  Json line = completion(14);
  const std::string plain = text_of(line);
  line["body"]["cfg_scale"] = 2.5;
  line["body"]["negative_prompt"] = "knot";
  const std::string guided = text_of(line);
  EXPECT_NE(guided, plain);

  SessionOptions options;
  options.model = model_;
  options.backend = "ref";
  options.sequences = 2;
  Engine engine(ModelSession::load(options));
  Request request;
  request.prompt = engine.tokenizer().encode(line["body"]["prompt"].get<std::string>());
  request.sampling = engine.session().defaults().sampling;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = line["body"]["max_tokens"];
  EXPECT_EQ(engine.submit(request).wait().front().text, plain);
  request.sampling.cfg_scale = 2.5f;
  request.sampling.negative_prompt = "knot";
  EXPECT_EQ(engine.submit(request).wait().front().text, guided);
}

TEST_F(Batch, WhatStoppedAChoiceIsSaid) {
  Json line = completion(20);
  const Json plain = choice_of(line);
  EXPECT_EQ(plain.at("finish_reason"), "length");
  EXPECT_TRUE(plain.at("stop_reason").is_null());
  const auto text = plain.at("text").get<std::string>();
  std::size_t at = text.size() / 2;
  while (at < text.size() && !std::isgraph(static_cast<unsigned char>(text[at]))) ++at;
  ASSERT_LT(at, text.size()) << text;
  std::string letter = text.substr(at, 1);
  line["body"]["stop"] = letter;
  Json stopped = choice_of(line);
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
  EXPECT_EQ(stopped.at("stop_reason"), letter);
  EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(letter)));
  // The token of a letter is its byte; all longer tokens begin with a tilde.
  for (const char c : text) {
    const bool in_longer = c == '~' || std::isdigit(static_cast<unsigned char>(c));
    if (std::isgraph(static_cast<unsigned char>(c)) && !in_longer) letter = c;
  }
  line["body"].erase("stop");
  line["body"]["stop_token_ids"] = {static_cast<int>(letter[0])};
  stopped = choice_of(line);
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
  EXPECT_EQ(stopped.at("stop_reason"), static_cast<int>(letter[0]));
}

TEST_F(Batch, LogProbabilitiesOfThePrompt) {
  Json line = completion(2);
  line["body"]["prompt"] = "abc";
  line["body"]["prompt_logprobs"] = 2;
  line["body"]["n"] = 2;
  line["body"]["temperature"] = 1;
  const Json choices = body_of(line, {"-b", "1"}).at("choices");
  const Json& list = choices.at(0).at("prompt_logprobs");
  ASSERT_EQ(list.size(), 4u);  // <s> and three letters
  EXPECT_TRUE(list[0].is_null());
  for (std::size_t i = 1; i < 4; ++i) {
    const char letter = static_cast<char>('a' + i - 1);
    const Json& own = list[i].at(std::to_string(static_cast<int>(letter)));
    EXPECT_EQ(own.at("decoded_token"), std::string(1, letter));
    EXPECT_LT(own.at("logprob").get<double>(), 0);
    EXPECT_GE(list[i].size(), 2u);
    EXPECT_LE(list[i].size(), 3u);
  }
  EXPECT_TRUE(choices.at(1).at("prompt_logprobs").is_null());
  line["body"].erase("prompt_logprobs");
  EXPECT_FALSE(choice_of(line).contains("prompt_logprobs"));

  Json chat{{"custom_id", "chat"}, {"method", "POST"}, {"url", "/v1/chat/completions"}};
  chat["body"] = {{"messages", {{{"role", "user"}, {"content", "abc"}}}},
                  {"max_tokens", 2},
                  {"prompt_logprobs", 0}};
  const Json body = body_of(chat);
  EXPECT_EQ(body.at("prompt_logprobs").size(), 6u);  // <s><|user|>abc<|bot|>
  EXPECT_FALSE(body.at("choices").at(0).contains("prompt_logprobs"));
}

TEST_F(Batch, ALineChoosesAmongTheAdaptersThatAreLoaded) {
  AdapterFiles files;
  files.add("model.layers.0.self_attn.q_proj", {32, 32});
  files.add("lm_head", {32, 320});
  for (const char* folder : {"one", "more/one"}) {
    fs::create_directories(work_ / folder);
    files.write(work_ / folder);
  }
  const std::string one = (work_ / "one").string() + ":0.5";
  const std::string other = (work_ / "more/one/").string();
  Json line = completion(20);
  const std::string plain = text_of(line);
  const std::string half = text_of(line, {"--lora", one});
  ASSERT_NE(half, plain);
  const std::vector<std::string> both{"--lora", one, "--lora", other};
  const std::string all = text_of(line, both);
  ASSERT_NE(all, half);
  const auto with = [&](const Json& adapters) {
    line["body"]["adapters"] = adapters;
    return text_of(line, both);
  };
  EXPECT_EQ(with(Json()), all);
  EXPECT_EQ(with(Json::array()), plain);
  EXPECT_EQ(with({{{"name", "one"}}}), half);
  EXPECT_EQ(with({{{"name", "one#2"}, {"weight", 0.5}}}), half);
  EXPECT_EQ(with({{{"name", "one"}, {"weight", 0.5}}, {{"name", "one#2"}}}), all);

  line["body"]["adapters"] = {{{"name", "two"}}};
  const Json refused = body_of(line, both).at("error");
  EXPECT_NE(refused.at("message").get<std::string>().find("there is one, one#2"), std::string::npos)
      << refused;
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
  none["body"]["max_tokens"] = -5;
  Json broken_schema = completion(7);
  broken_schema["body"]["guided_regex"] = "(((";
  std::vector<Json> lines{completion(0), no_prompt, hot,  streamed,
                          foreign,       long_one,  none, broken_schema};
  for (const double n : {-1.0, 0.0, 3e8, 1e11}) {
    lines.push_back(completion(static_cast<int>(lines.size())));
    lines.back()["body"]["n"] = n;
  }
  const std::vector<std::pair<const char*, Json>> not_there{{"include_stop_str_in_output", true},
                                                            {"bad_words", {"x"}},
                                                            {"truncate_prompt_tokens", 5},
                                                            {"use_beam_search", true}};
  for (const auto& [key, value] : not_there) {
    lines.push_back(completion(static_cast<int>(lines.size())));
    lines.back()["body"][key] = value;
    lines[0]["body"][key] = value.is_array() ? Json::array() : Json(nullptr);
  }
  const auto chat = [&](const char* key, const Json& value) {
    Json line = completion(static_cast<int>(lines.size()));
    line["url"] = "/v1/chat/completions";
    line["body"] = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"max_tokens", 3}};
    line["body"][key] = value;
    lines.push_back(line);
  };
  for (const Json& tools : {Json(5), Json("f"), Json{{"a", 1}}, Json{5}, Json{{{"function", 5}}}}) {
    chat("tools", tools);
  }
  for (const Json& message :
       {Json(5), Json::array(), Json{{"role", 5}}, Json{{"role", "user"}, {"content", 5}},
        Json{{"role", "user"}, {"content", {5}}},
        Json{{"role", "assistant"}, {"content", "a"}, {"tool_calls", 5}},
        Json{{"role", "assistant"}, {"content", "a"}, {"tool_calls", {5}}}}) {
    chat("messages", Json::array({message}));
  }
  for (const Json& adapters :
       {Json(5), Json("one"), Json{5}, Json{{{"name", 5}}},
        Json{{{"name", "one"}, {"weight", "much"}}}, Json{{{"name", "one"}}}}) {
    lines.push_back(completion(static_cast<int>(lines.size())));
    lines.back()["body"]["adapters"] = adapters;
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

TEST_F(Batch, FilesThatHoldNoAnswersAreLeftAlone) {
  // A file that holds anything but answers is left alone.
  write_file_atomically(out(), "notes of mine\n");
  EXPECT_EQ(run(write({completion(1)})).status, 1);
  EXPECT_EQ(read_file(out()), "notes of mine\n");
}

// Requests are read twice, and a pipe would be empty the second time.
TEST_F(Batch, RequestsMustBeAFile) {
  const fs::path pipe = work_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& input : {work_, pipe}) {
    const ProgramResult result = run(input.string());
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.err.find("they need a file"), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(out()));
  }
}

TEST_F(Batch, TwoRunsDoNotShareAFileOfAnswers) {
  const std::string input = write({completion(1)});
  std::FILE* other = std::fopen(out().c_str(), "ab");
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(::flock(::fileno(other), LOCK_EX), 0);
  const ProgramResult result = run(input);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("another process"), std::string::npos) << result.err;
  std::fclose(other);
  EXPECT_EQ(run(input).status, 0);
}

// A run that cannot begin leaves no output file.
TEST_F(Batch, NothingIsLeftOfARunThatCannotBegin) {
  const std::string input = write({completion(1)});
  const ProgramResult result =
      run_program({"batch", input, "-o", out(), "-m", (work_ / "none").string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(Batch, WhatTheTemplateIsTold) {
  Json line{{"custom_id", "x"},
            {"method", "POST"},
            {"url", "/v1/chat/completions"},
            {"body",
             {{"messages", {{{"role", "user"}, {"content", "ab"}}}},
              {"max_tokens", 1},
              {"chat_template_kwargs", {{"bos_token", "abcdefgh"}}}}}};
  const auto response = [&] {
    fs::remove(out());
    EXPECT_EQ(run(write({line})).status, 0);
    std::ifstream file(out());
    std::string text;
    std::getline(file, text);
    return parse_json(text, "answer").at("response");
  };
  const auto count = [&] {
    return response().at("body").at("usage").at("prompt_tokens").get<int>();
  };
  const int with = count();
  line["body"].erase("chat_template_kwargs");
  EXPECT_EQ(count(), with - 7);
  line["body"]["add_generation_prompt"] = false;
  EXPECT_EQ(count(), with - 8);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"tool_choice", "required"},
                                                 {"chat_template_kwargs", 3},
                                                 {"add_generation_prompt", "yes"},
                                                 {"skip_special_tokens", 1},
                                                 {"continue_final_message", true}}) {
    Json wrong = line;
    wrong["body"][key] = value;
    std::swap(wrong, line);
    EXPECT_EQ(response().at("status_code"), 400) << key;
    std::swap(wrong, line);
  }
}

TEST_F(Batch, WhatIsNoAnswerIsNeverCutOff) {
  // The last line of each file does not end, as after a kill.
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
  // Requests are not answers, neither in another file nor in their own.
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
