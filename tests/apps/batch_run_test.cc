// A batch whose model fails does not blame a request for it.

#include "batch_run.h"
#include "batch_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "../engine/tiny_model.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/session_model.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

// A model that fails at one of its steps, as a failing card or a lack of memory would.
class FailingModel : public SessionModel {
 public:
  FailingModel(ModelSession& session, int step, ErrorCode code)
      : SessionModel(session), left_(step), code_(code) {}
  void start(std::span<const StepItem> items) override {
    if (--left_ == 0) fail(code_, "the card has left");
    SessionModel::start(items);
  }

 private:
  int left_;
  ErrorCode code_;
};

class FailingBatch : public testing::Test {
 protected:
  void SetUp() override {
    options_.model = make_tiny_model("batch-run");
    options_.backend = "ref";
    options_.sequences = 2;
    work_ = scratch_dir("batch-run-work");
    std::string text;
    for (int i = 0; i < kLines; ++i) {
      const Json line{{"custom_id", std::to_string(i)},
                      {"method", "POST"},
                      {"url", "/v1/completions"},
                      {"body", {{"prompt", "thread"}, {"max_tokens", 4 + i}, {"temperature", 0}}}};
      text += json_text(line) + "\n";
    }
    write_file_atomically(work_ / "in.jsonl", text);
  }
  // `step`: the one that fails; 0: none.
  void run(int step, ErrorCode code) {
    auto session = ModelSession::load(options_);
    Engine engine(std::make_unique<FailingModel>(*session, step, code), &session->tokenizer(),
                  session->defaults().end_tokens);
    BatchOutput output(work_ / "out.jsonl");
    BatchRun(engine, *session, {work_ / "in.jsonl", output, kLines, 4, {}}).run();
  }
  // Returns the custom_ids of the answers with this status.
  std::set<std::string> answered(int status) {
    std::set<std::string> ids;
    std::ifstream file(work_ / "out.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json answer = parse_json(line, "answer");
      if (answer["response"]["status_code"] == status) ids.insert(answer["custom_id"]);
    }
    return ids;
  }

  static constexpr int kLines = 8;
  SessionOptions options_;
  fs::path work_;
};

TEST_F(FailingBatch, ACardThatFailsEndsItAndTheSameCommandGoesOn) {
  try {
    run(12, ErrorCode::kDevice);
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("the card has left"), std::string::npos);
  }
  EXPECT_LT(answered(200).size(), std::size_t{kLines});
  EXPECT_TRUE(answered(500).empty());
  run(0, ErrorCode::kDevice);
  EXPECT_EQ(answered(200).size(), std::size_t{kLines});
}

// A lack of memory in a step is an error of the requests in that step.
TEST_F(FailingBatch, AStepWithoutMemoryIsAnAnswer) {
  run(12, ErrorCode::kOutOfMemory);
  EXPECT_GT(answered(500).size(), 0u);
  EXPECT_EQ(answered(200).size() + answered(500).size(), std::size_t{kLines});
}

}  // namespace
}  // namespace bl::test
