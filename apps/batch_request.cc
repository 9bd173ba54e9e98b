#include "batch_request.h"

#include <ctime>
#include <utility>

#include "api/answers.h"
#include "api/request_error.h"
#include "base/json.h"
#include "batch_file.h"

namespace bl {
namespace {

// The seed of a request that names none. Every run has the same, so that a batch that was
// interrupted ends as if it had not been.
std::uint64_t seed_of(const std::string& custom_id) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : custom_id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

Json answer_line(const std::string& custom_id, std::int64_t number, int status, Json body) {
  return {{"id", answer_id(number)},
          {"custom_id", custom_id.empty() ? Json() : Json(custom_id)},
          {"response",
           {{"status_code", status},
            {"request_id", fmt::format("req_{}", number)},
            {"body", std::move(body)}}},
          {"error", nullptr}};
}

}  // namespace

BatchRequest::BatchRequest(const OrderedJson& line, const ModelSession& session,
                           const openai::RequestDefaults& otherwise, openai::AnswerFormats& formats)
    : custom_id_(line.at("custom_id").get<std::string>()) {
  const OrderedJson& body = line.at("body");
  SamplingParams sampling = session.defaults().request;
  sampling.seed = seed_of(custom_id_);
  if (line.at("url") == "/v1/chat/completions") {
    auto request = openai::ChatRequest::read(body, otherwise, sampling);
    openai::ChatTurn turn = request.turn(session.text(), formats);
    requests_.push_back(std::move(turn.request));
    reading_ = std::move(turn.reading);
    body_ = std::move(request);
  } else {
    auto request = openai::CompletionRequest::read(body, otherwise, sampling);
    requests_ = request.engine_requests(session.tokenizer());
    body_ = std::move(request);
  }
  const bool streams = std::visit([](const auto& request) { return request.stream; }, body_);
  if (streams) {
    openai::fail_at(ErrorCode::kUnsupported, "stream",
                    "stream is true, but a batch has whole answers only; leave it out");
  }
}

const std::vector<std::string>& BatchRequest::unknown_fields() const {
  return std::visit(
      [](const auto& request) -> const std::vector<std::string>& { return request.unknown; },
      body_);
}

Json BatchRequest::response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                            const openai::Logprobs& logprobs) const {
  const auto* chat = std::get_if<openai::ChatRequest>(&body_);
  openai::AnswerHead head{
      fmt::format("{}-{}", chat != nullptr ? "chatcmpl" : "cmpl", number), std::time(nullptr), {}};
  if (chat != nullptr) {
    head.model = chat->model;
    std::vector<openai::ChatChoice> choices;
    for (const Answer& answer : answers.front()) {
      choices.push_back(openai::read_choice(answer, reading_));
    }
    return answer_line(custom_id_, number, 200,
                       chat_completion(head, *chat, {requests_.front().prompt, choices}, logprobs));
  }
  std::vector<openai::AnsweredPrompt> answered;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answered.push_back({requests_[i].prompt, answers[i]});
  }
  const auto& completion = std::get<openai::CompletionRequest>(body_);
  head.model = completion.model;
  return answer_line(custom_id_, number, 200,
                     text_completion(head, completion, answered, logprobs));
}

Json BatchRequest::failure(const std::string& custom_id, std::int64_t number, const Error& error) {
  openai::ErrorAnswer answer = openai::error_answer(error);
  return answer_line(custom_id, number, answer.status, std::move(answer.body));
}

}  // namespace bl
