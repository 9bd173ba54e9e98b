#include "api/ollama/answer_lines.h"

#include <utility>

#include "api/begun_object.h"
#include "api/finish.h"
#include "api/ollama/rfc3339.h"

namespace bl::ollama {
namespace {

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

Json line_of(const AnswerHead& head, std::string content, bool done) {
  Json line = {{"model", head.model}, {"created_at", rfc3339(head.clock())}, {"done", done}};
  if (head.route == Route::kChat) {
    line["message"] = {{"role", "assistant"}, {"content", std::move(content)}};
  } else {
    line["response"] = std::move(content);
  }
  return line;
}

// The object of a line that holds what the model says besides its content.
Json& said(Json& line) { return line.contains("message") ? line["message"] : line; }

}  // namespace

std::vector<Json> AnswerLines::push(const Event& event, const std::vector<AnswerEvent>& news) {
  if (has_context_) context_.insert(context_.end(), event.ids.begin(), event.ids.end());
  std::string content, thinking;
  Json calls = Json::array();
  for (const AnswerEvent& one : news) {
    switch (one.kind) {
      case AnswerEvent::Kind::kContent:
        content += one.text;
        break;
      case AnswerEvent::Kind::kReasoning:
        thinking += one.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
        call_ = {{"id", one.id}, {"function", {{"index", calls_++}, {"name", one.name}}}};
        arguments_.clear();
        break;
      case AnswerEvent::Kind::kArguments:
        arguments_ += one.text;
        break;
      case AnswerEvent::Kind::kCallEnd:
        call_["function"]["arguments"] = openai::begun_object(arguments_);
        calls.push_back(std::exchange(call_, nullptr));
        break;
    }
  }
  std::vector<Json> lines;
  if (!content.empty() || !thinking.empty() || !calls.empty()) {
    Json& one = lines.emplace_back(line(std::move(content), false));
    if (!thinking.empty()) said(one)["thinking"] = std::move(thinking);
    if (!calls.empty()) said(one)["tool_calls"] = std::move(calls);
  }
  if (event.finish) lines.push_back(last_line(event));
  return lines;
}

Json AnswerLines::line(std::string content, bool done) const {
  return line_of(head_, std::move(content), done);
}

Json AnswerLines::last_line(const Event& event) const {
  const Usage& usage = event.usage;
  Json last = line("", true);
  last["done_reason"] = openai::finish_reason(*event.finish);
  const double seconds = usage.queue_seconds + usage.prefill_seconds + usage.decode_seconds;
  last["total_duration"] = head_.load_nanoseconds + nanoseconds(seconds);
  last["load_duration"] = head_.load_nanoseconds;
  last["prompt_eval_count"] = usage.prompt_tokens;
  last["prompt_eval_duration"] = nanoseconds(usage.prefill_seconds);
  last["eval_count"] = usage.generated_tokens;
  last["eval_duration"] = nanoseconds(usage.decode_seconds);
  if (has_context_) last["context"] = context_;
  return last;
}

Json loaded(const AnswerHead& head, const char* done_reason) {
  Json line = line_of(head, "", true);
  line["done_reason"] = done_reason;
  line["total_duration"] = head.load_nanoseconds;
  line["load_duration"] = head.load_nanoseconds;
  return line;
}

void WholeAnswer::add(const Json& line) {
  if (answer_.is_null()) {
    answer_ = line;
    return;
  }
  const bool is_chat = line.contains("message");
  const Json& more = is_chat ? line["message"] : line;
  Json& all = is_chat ? answer_["message"] : answer_;
  for (const auto& [key, value] : more.items()) {
    const bool is_text = key == "content" || key == "response" || key == "thinking";
    if (is_text && all.contains(key)) {
      all[key].get_ref<std::string&>() += value.get_ref<const std::string&>();
    } else if (key == "tool_calls" && all.contains(key)) {
      all[key].insert(all[key].end(), value.begin(), value.end());
    } else {
      all[key] = value;
    }
  }
  for (const auto& [key, value] : line.items()) {
    if (is_chat && key != "message") answer_[key] = value;
  }
}

}  // namespace bl::ollama
