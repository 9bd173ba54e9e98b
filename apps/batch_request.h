#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/engine.h"
#include "sample/sampling_preset.h"

namespace bl {

// One line of a batch: OpenAI's request, as the engine wants it, and its answer as OpenAI has it.
class BatchRequest {
 public:
  // Throws kInvalidArgument or kUnsupported for what is wrong about the body.
  // `otherwise`: the form of answers for which the body asks for none; `preset` may be null.
  BatchRequest(const OrderedJson& line, const ModelSession& session,
               const ConstraintSpec& otherwise = {}, const SamplingPreset* preset = nullptr);

  const std::string& custom_id() const { return custom_id_; }
  // One a prompt.
  std::vector<Request> requests() const { return requests_; }
  // `answers`: the choices of each request, in order. `number` names the line.
  Json response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                const Tokenizer& tokenizer) const;
  // The line of a request that failed.
  static Json failure(const std::string& custom_id, std::int64_t number, const Error& error);

 private:
  void read_chat(const OrderedJson& body, const ModelSession& session);
  void read_completion(const OrderedJson& body, const ModelSession& session);
  void add_prompt(std::vector<std::int32_t> ids);
  Json choice(const Answer& answer, std::int64_t index, const Tokenizer& tokenizer) const;

  std::string custom_id_;
  std::string model_;
  bool is_chat_ = false;
  SamplingParams sampling_;
  ConstraintSpec constraint_;
  std::vector<Request> requests_;
};

}  // namespace bl
