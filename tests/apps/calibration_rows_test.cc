// Rows that a model writes to be calibrated with.

#include "calibration_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../engine/tiny_model.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "row_writer.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kBegin = 256, kEnd = 257, kUser = 258, kBot = 259;

std::unique_ptr<ModelSession> load(const fs::path& model, std::int64_t sequences) {
  SessionOptions options;
  options.model = model;
  options.backend = "cpu";
  options.threads = 2;
  options.sequences = sequences;
  options.longest = 128;
  return ModelSession::load(options);
}

std::int64_t count(const std::vector<std::int32_t>& row, std::int32_t id) {
  return std::count(row.begin(), row.end(), id);
}

TEST(GeneratedRows, DependOnTheSeedAndNotOnWhatRunsBeside) {
  const fs::path model = make_tiny_model("generated-rows");
  const auto rows = [&](std::int64_t sequences, std::uint64_t seed) {
    Engine engine(load(model, sequences));
    return generate_rows(engine, {.rows = 5, .length = 100, .seed = seed});
  };
  const GeneratedRows one = rows(1, 3);
  ASSERT_EQ(one.rows.size(), 5u);
  for (const auto& row : one.rows) EXPECT_EQ(row.size(), 100u);
  EXPECT_EQ(one.rows, rows(4, 3).rows);
  EXPECT_NE(one.rows, rows(4, 4).rows);
  EXPECT_NE(one.rows[0], one.rows[2]);
}

TEST(GeneratedRows, EverySecondRowHoldsConversations) {
  Engine engine(load(make_tiny_model("generated-chats"), 3));
  const GeneratedRows generated = generate_rows(engine, {.rows = 6, .length = 120, .seed = 1});
  EXPECT_EQ(generated.conversations, 3);
  for (std::size_t i = 0; i < generated.rows.size(); ++i) {
    const auto& row = generated.rows[i];
    EXPECT_EQ(row[0], kBegin);
    EXPECT_EQ(row[1] == kUser, i % 2 == 1) << i;
  }
}

TEST(GeneratedRows, AModelWithoutATemplateWritesTexts) {
  const fs::path model = make_tiny_model("generated-texts");
  Json config = read_json_file(model / "tokenizer_config.json");
  config.erase("chat_template");
  write_file_atomically(model / "tokenizer_config.json", json_text(config));
  Engine engine(load(model, 2));
  EXPECT_EQ(generate_rows(engine, {.rows = 3, .length = 40, .seed = 1}).conversations, 0);
}

Answer answer_of(std::vector<std::int32_t> ids, FinishReason reason) {
  Answer answer;
  answer.ids = std::move(ids);
  answer.reason = reason;
  return answer;
}

class RowWriterTest : public testing::Test {
 protected:
  std::unique_ptr<ModelSession> session_ = load(make_tiny_model("row-writer"), 1);
  FirstWords words_{*session_};
  const Tokenizer& tokenizer_ = session_->tokenizer();
};

TEST_F(RowWriterTest, BeginsATextBehindAnEndToken) {
  RowWriter writer(words_, nullptr, 32, 5);
  const std::size_t opening = writer.next_request(tokenizer_).prompt.size();
  ASSERT_EQ(opening, 2u);  // BOS and a letter
  writer.add(answer_of({7, 8, kEnd}, FinishReason::kEndToken));
  const Request second = writer.next_request(tokenizer_);
  // The model does not see the text before.
  EXPECT_EQ(second.prompt.size(), 2u);
  EXPECT_EQ(second.prompt[0], kBegin);
  EXPECT_EQ(second.sampling.max_tokens, 32 - 7);
  writer.add(answer_of(std::vector<std::int32_t>(25, 9), FinishReason::kMaxTokens));
  ASSERT_TRUE(writer.full());
  const std::vector<std::int32_t> row = writer.take();
  EXPECT_EQ(row.size(), 32u);
  EXPECT_EQ(count(row, kBegin), 2);
  EXPECT_EQ(count(row, kEnd), 1);
}

TEST_F(RowWriterTest, LetsTheModelWriteBothSidesOfAConversation) {
  const std::optional<ChatFrame> frame = chat_frame(session_->text());
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->opening, (std::vector<std::int32_t>{kBegin, kUser}));
  EXPECT_EQ(frame->after_user, (std::vector<std::int32_t>{kBot}));
  EXPECT_EQ(frame->after_answer, (std::vector<std::int32_t>{kEnd, kUser}));
  RowWriter writer(words_, &*frame, 40, 5);
  EXPECT_EQ(writer.next_request(tokenizer_).sampling.stop_tokens, std::vector{kBot});
  writer.add(answer_of({1, 2, kBot}, FinishReason::kEndToken));
  EXPECT_EQ(writer.next_request(tokenizer_).sampling.stop_tokens, std::vector{kEnd});
  writer.add(answer_of({3, 4, kEnd}, FinishReason::kEndToken));
  // A message that does not end is cut and answered.
  writer.add(answer_of({5, 6}, FinishReason::kMaxTokens));
  EXPECT_EQ(writer.next_request(tokenizer_).prompt,
            (std::vector<std::int32_t>{kBegin, kUser, 1, 2, kBot, 3, 4, kEnd, kUser, 5, 6, kBot}));
}

// A conversation that the model ends in the middle of a message is over.
TEST_F(RowWriterTest, BeginsAConversationBehindAnotherEndToken) {
  const std::optional<ChatFrame> frame = chat_frame(session_->text());
  ASSERT_TRUE(frame);
  RowWriter writer(words_, &*frame, 40, 5);
  writer.add(answer_of({1, kEnd}, FinishReason::kEndToken));
  EXPECT_EQ(writer.next_request(tokenizer_).prompt, frame->opening);
}

class SelfCalibratedConversion : public testing::Test {
 protected:
  ProgramResult convert(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"convert",
                                       "-i",
                                       model_.string(),
                                       "-o",
                                       work_.string(),
                                       "-cf",
                                       (root_ / "out").string(),
                                       "--force",
                                       "-r",
                                       "4",
                                       "-l",
                                       "64",
                                       "-mr",
                                       "2",
                                       "-b",
                                       "4",
                                       "--threads",
                                       "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
  fs::path root_ = scratch_dir("self-calibrated");
  fs::path work_ = root_ / "work";
  fs::path model_ = make_tiny_model("self-calibrated-model");
};

TEST_F(SelfCalibratedConversion, KeepsItsRowsForAJobThatGoesOn) {
  const ProgramResult first = convert();
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.err.find("4 rows, 256 tokens"), std::string::npos) << first.err;
  const Json config = read_json_file(root_ / "out" / "config.json");
  const Json& made = config.at("quantization_config").at("calibration");
  EXPECT_EQ(made.at("dataset"), "generated");
  EXPECT_EQ(made.at("rows"), 4);
  const std::string weights = read_file(root_ / "out" / "output.safetensors");
  const auto time = fs::last_write_time(work_ / "calibration.json");
  const ProgramResult second = convert();
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(second.err.find("the model writes"), std::string::npos) << second.err;
  EXPECT_EQ(fs::last_write_time(work_ / "calibration.json"), time);
  EXPECT_EQ(read_file(root_ / "out" / "output.safetensors"), weights);
}

// After an interruption only the missing rows are written, and they are the same.
TEST_F(SelfCalibratedConversion, WritesTheRowsThatAreMissing) {
  ASSERT_EQ(convert().status, 0);
  const std::string whole = read_file(work_ / "calibration.json");
  Json kept = parse_json(whole, "rows");
  const Json second = kept["rows"][1];
  kept["rows"][0] = Json::array();
  kept["rows"][1] = kept["rows"][2];  // is taken as it is
  kept["rows"][3] = Json::array();
  fs::remove_all(work_);
  fs::create_directories(work_);
  write_file_atomically(work_ / "calibration.json", json_text(kept));
  const ProgramResult result = convert();
  ASSERT_EQ(result.status, 0) << result.err;
  kept = read_json_file(work_ / "calibration.json");
  EXPECT_EQ(kept["rows"][1], kept["rows"][2]);
  kept["rows"][1] = second;
  EXPECT_EQ(kept, parse_json(whole, "rows"));
}

// The template renders what files hold; the report names them.
TEST_F(SelfCalibratedConversion, TakesConversationsFromAFile) {
  const auto session = load(model_, 1);
  OrderedJson messages = OrderedJson::array();
  messages.push_back({{"role", "user"}, {"content", "a"}});
  messages.push_back({{"role", "assistant"}, {"content", "b"}});
  EXPECT_EQ(render_conversation(session->text(), messages), "<s><|user|>a<|bot|>b</s>");
  std::string lines;
  // Rendered, these are 6 · 41 tokens, too few for 4 rows of 64 and one to hold out, but not for 2;
  // joined, they would be 8 · 41.
  for (int i = 0; i < 41; ++i) lines += json_text(OrderedJson{{"messages", messages}}) + "\n";
  write_file_atomically(root_ / "chats.jsonl", lines);
  EXPECT_EQ(convert({"-c", (root_ / "chats.jsonl").string()}).status, 1);
  const ProgramResult result = convert({"-c", (root_ / "chats.jsonl").string(), "-r", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json config = read_json_file(root_ / "out" / "config.json");
  EXPECT_EQ(config.at("quantization_config").at("calibration").at("dataset"), "chats.jsonl");
}

TEST_F(SelfCalibratedConversion, RefusesRowsOfAnotherJob) {
  ASSERT_EQ(convert().status, 0);
  const ProgramResult other = convert({"--seed", "9"});
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("--seed"), std::string::npos) << other.err;
  const std::string before = read_file(work_ / "calibration.json");
  ASSERT_EQ(convert({"--seed", "9", "--no_resume"}).status, 0);
  EXPECT_NE(read_file(work_ / "calibration.json"), before);
}

TEST_F(SelfCalibratedConversion, RefusesDamagedRows) {
  ASSERT_EQ(convert().status, 0);
  Json kept = read_json_file(work_ / "calibration.json");
  for (const Json& wrong : {Json(320), Json(-1), Json("a"), Json(nullptr)}) {
    Json damaged = kept;
    damaged["rows"][1][5] = wrong;
    write_file_atomically(work_ / "calibration.json", json_text(damaged));
    const ProgramResult result = convert();
    EXPECT_EQ(result.status, 1) << json_text(wrong);
    EXPECT_NE(result.err.find("is damaged"), std::string::npos) << result.err;
  }
  kept["rows"].erase(2);
  write_file_atomically(work_ / "calibration.json", json_text(kept));
  EXPECT_NE(convert().err.find("is damaged"), std::string::npos);
}

// Nothing is generated for a folder that will be refused.
TEST_F(SelfCalibratedConversion, RefusesAForeignFolderFirst) {
  fs::create_directories(work_);
  write_file_atomically(work_ / "letter.txt", "hello");
  const ProgramResult result = convert();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.find("the model writes"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("holds no conversion"), std::string::npos) << result.err;
}

// The tiny model's context is 1024 tokens: shorter rows, but as many tokens.
TEST_F(SelfCalibratedConversion, FitsRowsToTheContext) {
  const ProgramResult result = convert({"-r", "1", "-l", "2048", "-mr", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("2 rows, 2048 tokens"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace bl::test
