#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/request_fields.h"
#include "base/json.h"
#include "engine/request.h"
#include "server/served_model.h"

namespace bl::server {

// The body of a request to llama-server's /completion and /infill.
struct LlamaRequest {
  std::shared_ptr<ServedModel> model;
  openai::RequestFields fields;
  std::vector<std::vector<std::int32_t>> prompts;  // at least one
  bool is_list = false;         // the body has a list of prompts, so the answer is a list
  std::int64_t n_predict = -1;  // −1: to the end of the context; 0: computes the prompt only
  std::int64_t n_probs = 0;
  bool post_sampling_probs = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  bool return_progress = false;
  bool cache_prompt = true;
  double seconds = 0;                          // most for the answer; 0: no limit
  std::vector<std::string> response_fields{};  // "a/b" is member b of a; empty: all

  // Reads everything but the prompts. Throws RequestError and HttpError.
  static LlamaRequest read(const OrderedJson& body, std::shared_ptr<ServedModel> model);
  // Reads "prompt": a text, a list of token ids and texts, or a list of such prompts. Texts begin
  // with the tokenizer's BOS, and their special tokens are recognised.
  void read_prompts(const OrderedJson& body);

  // One request for each prompt. Throws openai::ContextOverflow.
  std::vector<Request> engine_requests() const;
  // The sampling parameters, by llama-server's names.
  OrderedJson generation_settings() const;
};

// The sampling parameters of `sampling` by llama-server's names.
OrderedJson llama_settings(const SamplingParams& sampling);

}  // namespace bl::server
