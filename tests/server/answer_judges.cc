#include "answer_judges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace bl::test {
namespace {

bool is_streamed(const Json& body, bool otherwise) { return body.value("stream", otherwise); }

void expect_json(const std::string& text, bool is_cut) {
  EXPECT_TRUE(is_cut || Json::accept(text)) << text;
}

bool forces_a_call(const Json& body) {
  if (!body.contains("tool_choice")) return false;
  const Json& choice = body["tool_choice"];
  if (choice.is_string()) return choice == "required";
  return choice.at("type") != "auto" && choice.at("type") != "none";
}

bool wants_json(const Json& body) {
  return body.contains("response_format") ||
         (body.contains("text") && body["text"].contains("format")) ||
         (body.contains("format") && body["format"] != "");
}

// --- OpenAI's chats and completions ---

void judge_usage(const Json& usage) {
  EXPECT_GT(usage.at("prompt_tokens"), 0);
  EXPECT_EQ(usage.at("total_tokens"),
            usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>());
}

struct ChatRead {
  std::string content;
  std::map<int, Json> calls;
  std::string finish;
};

void judge_chat_read(const ChatRead& read, const Json& body) {
  const bool is_cut = read.finish == "length";
  EXPECT_TRUE(is_cut || read.finish == "stop" || read.finish == "tool_calls") << read.finish;
  if (forces_a_call(body)) {
    ASSERT_FALSE(read.calls.empty());
    for (const auto& [index, call] : read.calls) {
      EXPECT_FALSE(call.at("id").get<std::string>().empty());
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_FALSE(call.at("function").at("name").get<std::string>().empty());
      expect_json(call.at("function").at("arguments"), is_cut);
    }
    if (!is_cut) {
      EXPECT_EQ(read.finish, "tool_calls");
    }
  } else if (wants_json(body)) {
    expect_json(read.content, is_cut);
  }
}

void judge_whole_chat(const Json& body, const Json& answer) {
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_TRUE(answer.at("created").is_number_integer());
  judge_usage(answer.at("usage"));
  const Json& choice = answer.at("choices").at(0);
  const Json& message = choice.at("message");
  EXPECT_EQ(message.at("role"), "assistant");
  ChatRead read;
  read.finish = choice.at("finish_reason");
  if (message.at("content").is_string()) read.content = message["content"];
  for (const Json& call : message.value("tool_calls", Json::array())) {
    read.calls[static_cast<int>(read.calls.size())] = call;
  }
  judge_chat_read(read, body);
}

void add_call_delta(const Json& delta, std::map<int, Json>& calls) {
  Json& call = calls[delta.at("index")];
  if (call.is_null()) {
    call = delta;
    return;
  }
  std::string& arguments = call["function"]["arguments"].get_ref<std::string&>();
  arguments += delta.at("function").at("arguments").get<std::string>();
}

void judge_chat_stream(const Json& body, const std::vector<SentEvent>& events) {
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().data, "[DONE]");
  ChatRead read;
  bool has_usage = false;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i].data);
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    if (chunk.at("choices").empty()) {
      judge_usage(chunk.at("usage"));
      has_usage = true;
      continue;
    }
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice.at("delta");
    if (i == 0) {
      EXPECT_EQ(delta.at("role"), "assistant");
    }
    if (delta.contains("content") && delta["content"].is_string()) {
      read.content += delta["content"].get<std::string>();
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      add_call_delta(call, read.calls);
    }
    if (choice.at("finish_reason").is_string()) read.finish = choice["finish_reason"];
  }
  const Json options = body.value("stream_options", Json::object());
  EXPECT_EQ(has_usage, options.value("include_usage", false));
  judge_chat_read(read, body);
}

void judge_chat(const Json& body, const HttpAnswer& answer) {
  if (is_streamed(body, false)) return judge_chat_stream(body, sent_events(answer.body));
  judge_whole_chat(body, answer.json());
}

void judge_completion(const Json& body, const HttpAnswer& answer) {
  if (!is_streamed(body, false)) {
    const Json whole = answer.json();
    EXPECT_TRUE(whole.at("choices").at(0).at("text").is_string());
    EXPECT_TRUE(whole["choices"][0].at("finish_reason").is_string());
    return judge_usage(whole.at("usage"));
  }
  const std::vector<SentEvent> events = sent_events(answer.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().data, "[DONE]");
  EXPECT_EQ(Json::parse(events.front().data).at("object"), "text_completion");
}

// --- OpenAI's responses ---

void judge_item(const Json& item, bool is_cut, std::set<std::string>& types) {
  const std::string& type = item.at("type").get_ref<const std::string&>();
  types.insert(type);
  EXPECT_FALSE(item.at("id").get<std::string>().empty());
  if (type == "message") {
    EXPECT_EQ(item.at("content").at(0).at("type"), "output_text");
    EXPECT_TRUE(item["content"][0].at("text").is_string());
  } else if (type == "function_call") {
    EXPECT_FALSE(item.at("call_id").get<std::string>().empty());
    EXPECT_FALSE(item.at("name").get<std::string>().empty());
    expect_json(item.at("arguments"), is_cut);
  } else {
    EXPECT_EQ(type, "reasoning");
  }
}

void judge_response_object(const Json& body, const Json& response) {
  EXPECT_EQ(response.at("object"), "response");
  EXPECT_EQ(response.at("store"), false);
  const bool is_cut = response.at("status") == "incomplete";
  if (is_cut) {
    EXPECT_EQ(response.at("incomplete_details").at("reason"), "max_output_tokens");
  } else {
    EXPECT_EQ(response["status"], "completed");
  }
  const Json& usage = response.at("usage");
  EXPECT_GT(usage.at("input_tokens"), 0);
  EXPECT_TRUE(usage.at("output_tokens").is_number_integer());
  EXPECT_TRUE(usage.at("input_tokens_details").at("cached_tokens").is_number_integer());
  EXPECT_TRUE(usage.at("output_tokens_details").at("reasoning_tokens").is_number_integer());
  std::set<std::string> types;
  for (const Json& item : response.at("output")) judge_item(item, is_cut, types);
  if (forces_a_call(body)) {
    EXPECT_TRUE(types.count("function_call") == 1) << response["output"].dump();
  } else if (wants_json(body)) {
    expect_json(response["output"].back().at("content").at(0).at("text"), is_cut);
  }
}

void judge_response_stream(const Json& body, const std::vector<SentEvent>& events) {
  ASSERT_GE(events.size(), 3u);
  std::string text, whole_text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json event = Json::parse(events[i].data);
    EXPECT_EQ(event.at("type"), events[i].name);
    EXPECT_EQ(event.at("sequence_number"), i);
    if (i == 0) {
      EXPECT_EQ(events[i].name, "response.created");
    }
    if (events[i].name == "response.output_text.delta") text += event.at("delta");
    if (events[i].name == "response.output_text.done") whole_text += event.at("text");
  }
  EXPECT_EQ(text, whole_text);
  const std::string& last = events.back().name;
  EXPECT_TRUE(last == "response.completed" || last == "response.incomplete") << last;
  judge_response_object(body, Json::parse(events.back().data).at("response"));
}

void judge_response(const Json& body, const HttpAnswer& answer) {
  if (is_streamed(body, false)) return judge_response_stream(body, sent_events(answer.body));
  judge_response_object(body, answer.json());
}

// --- Anthropic's messages ---

void judge_message_usage(const Json& usage) {
  EXPECT_GE(usage.at("input_tokens"), 0);
  EXPECT_GT(usage["input_tokens"].get<int>() + usage.at("cache_read_input_tokens").get<int>(), 0);
  EXPECT_TRUE(usage.at("output_tokens").is_number_integer());
}

void judge_stop(const Json& body, const Json& reason, const std::set<std::string>& types) {
  const bool is_cut = reason == "max_tokens";
  EXPECT_TRUE(is_cut || reason == "end_turn" || reason == "tool_use" || reason == "stop_sequence")
      << reason;
  if (forces_a_call(body)) {
    EXPECT_EQ(types.count("tool_use"), 1u);
    EXPECT_TRUE(is_cut || reason == "tool_use") << reason;
  }
}

void judge_whole_message(const Json& body, const Json& message) {
  EXPECT_EQ(message.at("type"), "message");
  EXPECT_EQ(message.at("role"), "assistant");
  EXPECT_FALSE(message.at("id").get<std::string>().empty());
  judge_message_usage(message.at("usage"));
  ASSERT_FALSE(message.at("content").empty());
  std::set<std::string> types;
  for (const Json& block : message["content"]) {
    types.insert(block.at("type"));
    if (block["type"] == "tool_use") {
      EXPECT_TRUE(block.at("input").is_object());
    }
    if (block["type"] == "text") {
      EXPECT_TRUE(block.at("text").is_string());
    }
  }
  judge_stop(body, message.at("stop_reason"), types);
}

// Follows the blocks of a stream, each of which takes deltas of its own types alone.
class BlockFollower {
 public:
  void take(const Json& event) {
    const std::string& name = event.at("type").get_ref<const std::string&>();
    if (name == "content_block_start") {
      EXPECT_FALSE(open_);
      EXPECT_EQ(event.at("index"), next_++);
      open_ = true;
      type_ = event.at("content_block").at("type");
      types_.insert(type_);
      input_.clear();
      return;
    }
    EXPECT_TRUE(open_) << name;
    EXPECT_EQ(event.at("index"), next_ - 1);
    if (name == "content_block_stop") {
      open_ = false;
      return;
    }
    static const std::map<std::string, std::string> kBlocks{{"text_delta", "text"},
                                                            {"thinking_delta", "thinking"},
                                                            {"signature_delta", "thinking"},
                                                            {"input_json_delta", "tool_use"}};
    EXPECT_EQ(kBlocks.at(event.at("delta").at("type")), type_);
    if (type_ == "tool_use") input_ += event["delta"].at("partial_json");
  }
  bool open() const { return open_; }
  const std::set<std::string>& types() const { return types_; }
  const std::string& input() const { return input_; }

 private:
  bool open_ = false;
  int next_ = 0;
  std::string type_, input_;
  std::set<std::string> types_;
};

void judge_message_stream(const Json& body, const std::vector<SentEvent>& events) {
  ASSERT_GE(events.size(), 5u);
  BlockFollower blocks;
  Json reason;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json event = Json::parse(events[i].data);
    const std::string& name = events[i].name;
    EXPECT_EQ(event.at("type"), name);
    if (name == "ping") continue;
    EXPECT_EQ(name == "message_start", i == 0);
    EXPECT_EQ(name == "message_stop", i + 1 == events.size());
    if (name == "message_start") {
      judge_message_usage(event.at("message").at("usage"));
    } else if (name == "message_delta") {
      EXPECT_FALSE(blocks.open());
      reason = event.at("delta").at("stop_reason");
      judge_message_usage(event.at("usage"));
    } else if (name != "message_stop") {
      blocks.take(event);
    }
  }
  judge_stop(body, reason, blocks.types());
  if (forces_a_call(body)) expect_json(blocks.input(), reason == "max_tokens");
}

void judge_message(const Json& body, const HttpAnswer& answer) {
  if (is_streamed(body, false)) return judge_message_stream(body, sent_events(answer.body));
  judge_whole_message(body, answer.json());
}

// --- Ollama ---

void judge_last_line(const Json& line, bool is_chat, bool has_context) {
  EXPECT_EQ(line.at("done"), true);
  EXPECT_TRUE(line.at("created_at").is_string());
  const std::string reason = line.at("done_reason");
  EXPECT_TRUE(reason == "stop" || reason == "length" || reason == "load") << reason;
  EXPECT_TRUE((is_chat ? line.at("message").at("content") : line.at("response")).is_string());
  if (reason == "load") return;
  for (const char* key : {"prompt_eval_count", "eval_count", "total_duration", "load_duration",
                          "prompt_eval_duration", "eval_duration"}) {
    EXPECT_TRUE(line.at(key).is_number_integer()) << key;
  }
  EXPECT_EQ(line.contains("context"), has_context);
}

void judge_ollama(const Json& body, const HttpAnswer& answer, bool is_chat) {
  std::string text;
  std::vector<Json> lines;
  if (is_streamed(body, true)) {
    EXPECT_TRUE(answer.has("application/x-ndjson"));
    lines = json_lines(answer.body);
  } else {
    lines.push_back(answer.json());
  }
  ASSERT_FALSE(lines.empty());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("done"), i + 1 == lines.size());
    text += is_chat ? lines[i].at("message").at("content") : lines[i].at("response");
  }
  judge_last_line(lines.back(), is_chat, !is_chat && !body.value("raw", false));
  if (wants_json(body)) expect_json(text, lines.back()["done_reason"] == "length");
}

void judge_details(const Json& details) {
  for (const char* key : {"format", "family", "parameter_size", "quantization_level"}) {
    EXPECT_TRUE(details.at(key).is_string()) << key;
  }
}

bool is_time(const std::string& text) {
  return text.size() >= 20 && text[4] == '-' && text[10] == 'T' && text.back() == 'Z';
}

void judge_tags(const Json&, const HttpAnswer& answer) {
  const Json list = answer.json();
  ASSERT_EQ(list.at("models").size(), 1u);
  const Json& model = list["models"][0];
  EXPECT_EQ(model.at("model"), "smollm2");
  EXPECT_EQ(model.at("name"), "smollm2");
  EXPECT_TRUE(is_time(model.at("modified_at")));
  EXPECT_EQ(model.at("digest").get<std::string>().size(), 64u);
  EXPECT_GT(model.at("size"), 0);
  judge_details(model.at("details"));
}

void judge_running(const Json&, const HttpAnswer& answer) {
  const Json list = answer.json();
  ASSERT_EQ(list.at("models").size(), 1u);
  const Json& model = list["models"][0];
  EXPECT_EQ(model.at("model"), "smollm2");
  EXPECT_TRUE(is_time(model.at("expires_at")));
  EXPECT_GT(model.at("size"), 0);
  EXPECT_TRUE(model.at("size_vram").is_number());
  EXPECT_GT(model.at("context_length"), 0);
  judge_details(model.at("details"));
}

void judge_show(const Json&, const HttpAnswer& answer) {
  const Json shown = answer.json();
  judge_details(shown.at("details"));
  const std::string family = shown.at("model_info").at("general.architecture");
  EXPECT_GT(shown["model_info"].at(family + ".context_length"), 0);
  EXPECT_NE(shown.at("template").get<std::string>().find("<tool_call>"), std::string::npos);
  EXPECT_EQ(shown.at("capabilities"), Json({"completion", "tools", "thinking"}));
}

void judge_models(const Json&, const HttpAnswer& answer) {
  EXPECT_EQ(answer.json().at("data").at(0).at("id"), "smollm2");
}

void judge_count(const Json&, const HttpAnswer& answer) {
  EXPECT_GT(answer.json().at("input_tokens"), 10);
}

// --- embeddings ---

void judge_embeddings(const Json& body, const HttpAnswer& answer) {
  const Json list = answer.json();
  const std::size_t inputs = body.at("input").is_array() ? body["input"].size() : 1;
  ASSERT_EQ(list.at("data").size(), inputs);
  for (const Json& row : list["data"]) EXPECT_FALSE(row.at("embedding").empty());
  EXPECT_GT(list.at("usage").at("prompt_tokens"), 0);
}

void judge_embed(const Json& body, const HttpAnswer& answer) {
  const Json list = answer.json();
  const std::size_t inputs = body.at("input").is_array() ? body["input"].size() : 1;
  EXPECT_EQ(list.at("embeddings").size(), inputs);
  EXPECT_GT(list.at("prompt_eval_count"), 0);
}

void judge_old_embedding(const Json&, const HttpAnswer& answer) {
  EXPECT_FALSE(answer.json().at("embedding").empty());
}

using Judge = std::function<void(const Json&, const HttpAnswer&)>;

const std::map<std::string, Judge>& judges() {
  static const std::map<std::string, Judge> kJudges{
      {"/v1/chat/completions", judge_chat},
      {"/v1/completions", judge_completion},
      {"/v1/responses", judge_response},
      {"/v1/messages", judge_message},
      {"/v1/messages/count_tokens", judge_count},
      {"/v1/models", judge_models},
      {"/v1/embeddings", judge_embeddings},
      {"/api/chat", [](const Json& body, const HttpAnswer& a) { judge_ollama(body, a, true); }},
      {"/api/generate",
       [](const Json& body, const HttpAnswer& a) { judge_ollama(body, a, false); }},
      {"/api/tags", judge_tags},
      {"/api/ps", judge_running},
      {"/api/show", judge_show},
      {"/api/embed", judge_embed},
      {"/api/embeddings", judge_old_embedding}};
  return kJudges;
}

}  // namespace

void judge_answer(const std::string& path, const Json& body, const HttpAnswer& answer) {
  const auto judge = judges().find(path);
  ASSERT_NE(judge, judges().end()) << "nothing judges the answers of " << path;
  try {
    judge->second(body, answer);
  } catch (const std::exception& failure) {
    ADD_FAILURE() << failure.what() << "\n" << answer.body.substr(0, 2000);
  }
}

void judge_error(const std::string& path, const HttpAnswer& answer) {
  ASSERT_TRUE(Json::accept(answer.body)) << answer.body;
  const Json error = answer.json();
  try {
    if (path.starts_with("/api/")) {
      EXPECT_FALSE(error.at("error").get<std::string>().empty());
      return;
    }
    const Json& object = error.at("error");
    EXPECT_TRUE(object.at("type").is_string());
    EXPECT_FALSE(object.at("message").get<std::string>().empty());
    if (path.starts_with("/v1/messages")) {
      EXPECT_EQ(error.at("type"), "error");
    } else {
      EXPECT_TRUE(object.contains("param") && object.contains("code"));
    }
  } catch (const std::exception& failure) {
    ADD_FAILURE() << failure.what() << "\n" << answer.body;
  }
}

}  // namespace bl::test
