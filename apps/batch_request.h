#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "api/answer_formats.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/logprobs.h"
#include "base/json_fwd.h"
#include "engine/engine.h"

namespace bl {

// One line of a batch: an OpenAI request as the engine takes it, and its answer as OpenAI's batch
// API has it.
class BatchRequest {
 public:
  // `line` is the document of a BatchLine without an error. Throws openai::RequestError and others
  // for what is wrong about its body.
  BatchRequest(const OrderedJson& line, const ModelSession& session,
               const openai::RequestDefaults& otherwise, openai::AnswerFormats& formats);

  const std::string& custom_id() const { return custom_id_; }
  // The names of fields that have no meaning here.
  const std::vector<std::string>& unknown_fields() const;
  // One for each prompt.
  std::vector<Request> requests() const { return requests_; }
  // `answers`: the choices of each request, in order. `number`: of the line. Throws the error of an
  // answer that ended with one.
  Json response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                const openai::Logprobs& logprobs) const;
  // The line that answers a request which failed. An empty custom_id is null there.
  static Json failure(const std::string& custom_id, std::int64_t number, const Error& error);

 private:
  std::string custom_id_;
  std::variant<openai::ChatRequest, openai::CompletionRequest> body_;
  std::vector<Request> requests_;
  std::shared_ptr<const openai::ChatReading> reading_;  // of a chat
};

}  // namespace bl
