#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/engine.h"
#include "logprobs_json.h"
#include "sample/sampling_preset.h"

namespace bl {

// What the lines of a batch leave open.
struct BatchDefaults {
  ConstraintSpec constraint{};             // the form of answers
  std::optional<SamplingPreset> preset{};  // parameters
  std::vector<AdapterChoice> adapters{};   // those loaded, at the weights they were given
};

// One line of a batch: OpenAI's request, as the engine wants it, and its answer as OpenAI has it.
class BatchRequest {
 public:
  // Throws kInvalidArgument or kUnsupported for what is wrong about the body.
  BatchRequest(const OrderedJson& line, const ModelSession& session,
               const BatchDefaults& otherwise);

  const std::string& custom_id() const { return custom_id_; }
  // One a prompt.
  std::vector<Request> requests() const { return requests_; }
  // `answers`: the choices of each request, in order. `number` names the line. Throws the error of
  // an answer that ended with one.
  Json response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                const LogprobsJson& logprobs) const;
  // The line of a request that failed.
  static Json failure(const std::string& custom_id, std::int64_t number, const Error& error);

 private:
  void read_chat(const OrderedJson& body, const ModelSession& session);
  void read_completion(const OrderedJson& body, const ModelSession& session);
  void add_prompt(std::vector<std::int32_t> ids);
  // `of`: the request's place among requests().
  Json choice(const Answer& answer, std::size_t of, const LogprobsJson& logprobs) const;
  Json stop_reason(const Answer& answer) const;

  std::string custom_id_;
  std::string model_;
  bool is_chat_ = false;
  SamplingParams sampling_;
  ConstraintSpec constraint_;
  std::vector<AdapterChoice> adapters_;
  bool skip_special_ = true;
  std::vector<Request> requests_;
};

}  // namespace bl
