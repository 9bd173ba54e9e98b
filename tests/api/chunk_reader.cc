#include "chunk_reader.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace bl::test {
namespace {

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

// Puts the lists of `more` behind those of `all`.
void append_lists(Json& all, const Json& more) {
  if (more.is_null()) return;
  if (all.is_null()) {
    all = more;
    return;
  }
  for (const auto& [key, list] : more.items()) {
    if (!list.is_array()) continue;
    for (const Json& item : list) all[key].push_back(item);
  }
}

}  // namespace

void ChunkReader::add(const Json& chunk) {
  add_head(chunk);
  EXPECT_TRUE(usage_.is_null()) << "behind the usage: " << chunk;
  ASSERT_TRUE(chunk.at("choices").is_array());
  if (chunk.at("choices").empty()) {
    usage_ = chunk.at("usage");
    EXPECT_TRUE(usage_.is_object()) << chunk;
    return;
  }
  EXPECT_TRUE(!include_usage_ || chunk.at("usage").is_null()) << chunk;
  ASSERT_EQ(chunk.at("choices").size(), 1u);
  add_choice(chunk.at("choices").at(0));
}

void ChunkReader::add_head(const Json& chunk) {
  std::set<std::string> keys{"id", "object", "created", "model", "system_fingerprint", "choices"};
  if (include_usage_) keys.insert("usage");
  EXPECT_EQ(keys_of(chunk), keys) << chunk;
  EXPECT_EQ(chunk.at("object"), kind_ == Kind::kChat ? "chat.completion.chunk" : "text_completion");
  EXPECT_TRUE(chunk.at("id").is_string() && chunk.at("model").is_string());
  EXPECT_TRUE(chunk.at("system_fingerprint").get<std::string>().starts_with("bitloom-"));
  EXPECT_TRUE(chunk.at("created").is_number_integer());
  const Json head{chunk.at("id"), chunk.at("created"), chunk.at("model")};
  if (head_.is_null()) head_ = head;
  EXPECT_EQ(head, head_);
}

void ChunkReader::add_choice(const Json& choice) {
  Choice& into = choices_[choice.at("index").get<int>()];
  EXPECT_TRUE(into.finish_reason.is_null()) << "behind the end: " << choice;
  const bool is_last = !choice.at("finish_reason").is_null();
  std::set<std::string> keys{"index", "logprobs", "finish_reason"};
  keys.insert(kind_ == Kind::kChat ? "delta" : "text");
  if (is_last) keys.insert("stop_reason");
  EXPECT_EQ(keys_of(choice), keys) << choice;
  if (kind_ == Kind::kChat) {
    add_delta(choice.at("delta"), into);
    EXPECT_TRUE(!is_last || choice.at("delta").empty()) << choice;
  } else {
    into.text += choice.at("text").get<std::string>();
  }
  append_lists(into.logprobs, choice.at("logprobs"));
  if (!is_last) return;
  const std::set<std::string> reasons{"stop", "length", "tool_calls"};
  EXPECT_TRUE(reasons.contains(choice.at("finish_reason").get<std::string>())) << choice;
  into.finish_reason = choice.at("finish_reason");
  into.stop_reason = choice.at("stop_reason");
}

void ChunkReader::add_delta(const Json& delta, Choice& choice) const {
  if (!choice.begun) {
    EXPECT_EQ(delta, (Json{{"role", "assistant"}, {"content", nullptr}}));
    choice.begun = true;
    return;
  }
  EXPECT_FALSE(delta.contains("role")) << delta;
  if (delta.contains("content")) choice.text += delta.at("content").get<std::string>();
}

void ChunkReader::finish() const {
  for (const auto& [index, choice] : choices_) {
    EXPECT_FALSE(choice.finish_reason.is_null()) << index;
  }
  EXPECT_EQ(include_usage_, !usage_.is_null());
}

Json ChunkReader::choices() const {
  Json list = Json::array();
  for (const auto& [index, choice] : choices_) {
    Json& out = list.emplace_back(Json{{"index", index},
                                       {"logprobs", choice.logprobs},
                                       {"finish_reason", choice.finish_reason},
                                       {"stop_reason", choice.stop_reason}});
    if (kind_ == Kind::kChat) {
      out["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      out["text"] = choice.text;
    }
  }
  return list;
}

}  // namespace bl::test
