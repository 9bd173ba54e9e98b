// Whatever stands in a line of a batch, the others are answered.

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "batch_line.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

std::string line_of(const std::string& id, const std::string& body_members) {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{)" +
         R"("prompt":"ab","max_tokens":3)" + body_members + "}}";
}

class BatchLines : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_tiny_model("batch-lines").string();
    work_ = scratch_dir("batch-lines-work");
  }
  ProgramResult run(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_file_atomically(work_ / "in.jsonl", text);
    return run_program({"batch", (work_ / "in.jsonl").string(), "-o", out().string(), "-m", model_,
                        "--backend", "ref", "-q"});
  }
  fs::path out() const { return work_ / "out.jsonl"; }
  // The answers by the number of their request.
  std::map<std::string, Json> answers() {
    std::map<std::string, Json> found;
    std::ifstream file(out());
    for (std::string line; std::getline(file, line);) {
      const Json answer = parse_json(line, "answer");
      EXPECT_TRUE(found.emplace(answer.at("id"), answer).second) << line;
    }
    return found;
  }
  std::string model_;
  fs::path work_;
};

TEST_F(BatchLines, AWrongLineIsAnErrorOfItsOwn) {
  const std::string deep(100000, '[');
  struct Bad {
    std::string text;
    Json id;
  };
  const std::vector<Bad> bad{
      {"not JSON", nullptr},
      {R"({"custom_id":"cut","method":"POST","url":)", "cut"},
      {line_of("surrogate", R"(,"stop":"\ud800")"), "surrogate"},
      {line_of("half a pair", R"(,"user":"\ud83d x")"), "half a pair"},
      {line_of("bytes", ",\"stop\":\"\xff\xfe\""), "bytes"},
      {line_of("deep", R"(,"metadata":)" + deep), "deep"},
      {line_of("huge", R"(,"temperature":1e999)"), "huge"},
      {line_of("nan", R"(,"temperature":NaN)"), "nan"},
      {line_of("whole", R"(,"max_tokens":123456789012345678901234567890)"), "whole"},
      {deep, nullptr},
      {"[]", nullptr},
      {"5", nullptr},
      {R"({"method":"POST","url":"/v1/completions","body":{"prompt":"a"}})", nullptr},
      {R"({"custom_id":5,"url":"/v1/completions","body":{"prompt":"a"}})", nullptr},
      {R"({"custom_id":"url","url":"/v1/embeddings","body":{"input":"a"}})", "url"},
      {R"({"custom_id":"get","method":"GET","url":"/v1/completions","body":{}})", "get"},
      {R"({"custom_id":"body","url":"/v1/completions","body":[]})", "body"},
      {line_of("good 0", ""), nullptr},  // its custom_id stands above
  };
  std::vector<std::string> lines{line_of("good 0", "")};
  for (const Bad& one : bad) lines.push_back(one.text);
  lines.push_back(line_of("good 1", ""));
  const ProgramResult result = run(lines);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("request 2"), std::string::npos) << result.err;
  const auto found = answers();
  ASSERT_EQ(found.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& answer = found.at("batch_req_" + std::to_string(i + 1));
    const Json& response = answer.at("response");
    const bool is_bad = i > 0 && i + 1 < lines.size();
    EXPECT_EQ(response.at("status_code"), is_bad ? 400 : 200) << lines[i].substr(0, 100);
    if (!is_bad) continue;
    EXPECT_EQ(answer.at("custom_id"), bad[i - 1].id) << lines[i].substr(0, 100);
    const auto message = response.at("body").at("error").at("message").get<std::string>();
    EXPECT_FALSE(message.empty());
  }
  // Another run finds nothing left to do, and one that was cut off answers what is missing.
  const std::string before = read_file(out());
  EXPECT_EQ(run(lines).status, 0);
  EXPECT_EQ(read_file(out()), before);
  write_file_atomically(out(), before.substr(0, before.size() / 2));
  EXPECT_EQ(run(lines).status, 0);
  EXPECT_EQ(answers().size(), lines.size());
}

TEST_F(BatchLines, UnknownFieldsAreNamedOnceForASet) {
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  const ProgramResult plain = run({line_of("a", R"(,"seed":1)")});
  EXPECT_EQ(count(plain.err, "unknown"), 0) << plain.err;
  const Json text = answers().at("batch_req_1").at("response").at("body").at("choices");
  fs::remove(out());
  const ProgramResult result =
      run({line_of("a", R"(,"seed":1,"temprature":2,"zap":1)"), line_of("b", R"(,"zap":3)"),
           line_of("c", R"(,"zap":[],"temprature":1)"), line_of("d", R"(,"user":"me")"),
           line_of("e", R"(,"zap":null)")});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(count(result.err, "unknown"), 2) << result.err;
  EXPECT_EQ(count(result.err, "\"temprature\", \"zap\""), 1) << result.err;
  EXPECT_EQ(answers().at("batch_req_1").at("response").at("body").at("choices"), text);
}

}  // namespace
}  // namespace bl::test
