#include "server/llama_reply.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "api/finish.h"
#include "server/server_state.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

constexpr double kNoChance = -9999;  // JSON has no −∞

// llama-server's "stop_type".
const char* stop_type(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
    case FinishReason::kConstraint:
      return "eos";
    case FinishReason::kStopString:
      return "word";
    case FinishReason::kMaxTokens:
    case FinishReason::kContext:
    case FinishReason::kDeadline:
    case FinishReason::kLoop:
      return "limit";
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return "none";
}

// The member at a path such as "generation_settings/n_predict"; null where there is none.
const OrderedJson* at_path(const OrderedJson& object, std::string_view path) {
  const OrderedJson* at = &object;
  while (at->is_object()) {
    const std::size_t slash = path.find('/');
    const auto found = at->find(std::string(path.substr(0, slash)));
    if (found == at->end()) return nullptr;
    if (slash == path.npos) return &*found;
    at = &*found;
    path.remove_prefix(slash + 1);
  }
  return nullptr;
}

}  // namespace

LlamaReply::LlamaReply(LlamaRequest asked, LlamaForm form)
    : asked_(std::move(asked)),
      form_(form),
      id_(ServerState::new_id("cmpl-")),
      choices_(asked_.prompts.size() * static_cast<std::size_t>(asked_.fields.sampling.n)) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].timings = LiveTimings(std::ssize(prompt_of(i)));
  }
}

const std::vector<std::int32_t>& LlamaReply::prompt_of(std::size_t index) const {
  return asked_.prompts.at(index / static_cast<std::size_t>(asked_.fields.sampling.n));
}

std::size_t LlamaReply::index_of(std::size_t request, const Event& event) const {
  return request * static_cast<std::size_t>(asked_.fields.sampling.n) +
         static_cast<std::size_t>(event.choice);
}

OrderedJson LlamaReply::chance(const TokenChance& chance) const {
  const std::string bytes = asked_.model->logprobs().names().bytes(chance.id);
  OrderedJson list = OrderedJson::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  OrderedJson token = {{"id", chance.id}, {"token", bytes}, {"bytes", std::move(list)}};
  const double logprob = std::isfinite(chance.logprob) ? chance.logprob : kNoChance;
  if (asked_.post_sampling_probs) {
    token["prob"] = std::exp(logprob);
  } else {
    token["logprob"] = logprob;
  }
  return token;
}

OrderedJson LlamaReply::probability_of(const TokenLogprobs& token) const {
  OrderedJson best = OrderedJson::array();
  for (const TokenChance& each : token.best) {
    // A sampler has taken it out.
    if (asked_.post_sampling_probs && std::exp(each.logprob) == 0) continue;
    best.push_back(chance(each));
  }
  OrderedJson all = chance(token.token);
  all[asked_.post_sampling_probs ? "top_probs" : "top_logprobs"] = std::move(best);
  return all;
}

// One piece for the event or, where each token comes with its probabilities, one for each token;
// the text is in the last of them. The end token is none of the answer's.
std::vector<LlamaReply::Piece> LlamaReply::pieces_of(const Event& event) const {
  std::vector<Piece> pieces;
  std::size_t count = event.ids.size();
  if (event.finish == FinishReason::kEndToken && count > 0) --count;
  if (asked_.n_predict == 0) count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (pieces.empty() || asked_.n_probs > 0) pieces.emplace_back();
    pieces.back().ids.push_back(event.ids[i]);
    if (i < event.logprobs.size()) {
      pieces.back().probabilities.push_back(probability_of(event.logprobs[i]));
    }
  }
  if (asked_.n_predict == 0) return pieces;
  if (pieces.empty() && !event.text.empty()) pieces.emplace_back();
  if (!pieces.empty()) pieces.back().text = event.text;
  return pieces;
}

void LlamaReply::on_event(std::size_t request, Event event, http::Exchange& to) {
  if (event.finish == FinishReason::kError) throw Error(event.code, event.error);
  const std::size_t index = index_of(request, event);
  Choice& choice = choices_.at(index);
  tell_progress(index, event, to);
  choice.generated += static_cast<std::int64_t>(event.ids.size());
  for (Piece& piece : pieces_of(event)) {
    choice.has_new_line |= piece.text.find('\n') != std::string::npos;
    if (asked_.fields.stream) {
      send_piece(index, piece, to);
      continue;
    }
    choice.text += piece.text;
    choice.ids.insert(choice.ids.end(), piece.ids.begin(), piece.ids.end());
    for (OrderedJson& each : piece.probabilities) choice.probabilities.push_back(std::move(each));
  }
  if (!event.finish) return;
  choice.last = whole(index, event);
  if (asked_.fields.stream) stream_.data(to, Json(choice.last));
}

OrderedJson LlamaReply::head_of(std::size_t index, const Choice& choice) const {
  return {{"index", index},
          {"tokens_predicted", choice.generated},
          {"tokens_evaluated", prompt_of(index).size()}};
}

// With "return_progress", the first chunk of a choice says what was found in the cache, and further
// ones how much of the prompt is computed.
void LlamaReply::tell_progress(std::size_t index, const Event& event, http::Exchange& to) {
  choices_.at(index).timings.follow(event, [&] {
    if (asked_.fields.stream && asked_.return_progress) send_progress(index, to);
  });
}

void LlamaReply::send_progress(std::size_t index, http::Exchange& to) {
  const Choice& choice = choices_.at(index);
  OrderedJson chunk = head_of(index, choice);
  chunk["content"] = "";
  chunk["tokens"] = OrderedJson::array();
  chunk["stop"] = false;
  chunk["prompt_progress"] = choice.timings.progress();
  if (asked_.timings_per_token) chunk["timings"] = choice.timings.json();
  stream_.data(to, Json(chunk));
}

void LlamaReply::send_piece(std::size_t index, const Piece& piece, http::Exchange& to) {
  const Choice& choice = choices_.at(index);
  OrderedJson chunk = head_of(index, choice);
  chunk["content"] = piece.text;
  chunk["tokens"] = piece.ids;
  chunk["stop"] = false;
  chunk["id_slot"] = -1;
  if (asked_.n_probs > 0) chunk["completion_probabilities"] = piece.probabilities;
  if (asked_.timings_per_token) chunk["timings"] = choice.timings.json();
  add_choices(chunk, index, piece.text);
  stream_.data(to, Json(chunk));
}

// What the last line of a stream has, and a whole answer.
OrderedJson LlamaReply::whole(std::size_t index, const Event& last) const {
  const Choice& choice = choices_.at(index);
  const Usage& usage = last.usage;
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  const bool prompt_only = asked_.n_predict == 0;
  OrderedJson answer = head_of(index, choice);
  answer["content"] = choice.text;
  answer["tokens"] = asked_.return_tokens ? choice.ids : std::vector<std::int32_t>{};
  answer["id_slot"] = -1;
  answer["stop"] = true;
  answer["model"] = asked_.model->name();
  answer["tokens_predicted"] = prompt_only ? 0 : usage.generated_tokens;
  answer["generation_settings"] = asked_.generation_settings();
  answer["prompt"] = asked_.model->engine().tokenizer().decode(prompt, false);
  answer["has_new_line"] = choice.has_new_line;
  answer["truncated"] = *last.finish == FinishReason::kContext;
  answer["stop_type"] = stop_type(*last.finish);
  answer["stopping_word"] = last.stop_string;
  answer["tokens_cached"] = usage.prompt_tokens + usage.generated_tokens;
  answer["timings"] = llama_timings(usage);
  if (asked_.n_probs > 0 && !asked_.fields.stream) {
    answer["completion_probabilities"] = choice.probabilities;
  }
  add_choices(answer, index, choice.text);
  if (form_ == LlamaForm::kBoth) {
    answer["choices"][0]["finish_reason"] = openai::finish_reason(*last.finish);
    answer["usage"] = {{"prompt_tokens", usage.prompt_tokens},
                       {"completion_tokens", answer["tokens_predicted"]},
                       {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
  }
  return selected(std::move(answer));
}

void LlamaReply::add_choices(OrderedJson& answer, std::size_t index,
                             const std::string& text) const {
  if (form_ == LlamaForm::kNative) return;
  answer["id"] = id_;
  answer["object"] = "text_completion";
  answer["created"] = std::time(nullptr);
  answer["model"] = asked_.model->name();
  answer["choices"] = OrderedJson::array(
      {{{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
}

OrderedJson LlamaReply::selected(OrderedJson answer) const {
  if (asked_.response_fields.empty()) return answer;
  OrderedJson some = OrderedJson::object();
  for (const std::string& path : asked_.response_fields) {
    if (const OrderedJson* value = at_path(answer, path)) some[path] = *value;
  }
  return some;
}

void LlamaReply::on_end(http::Exchange& to) {
  if (asked_.fields.stream) {
    if (form_ == LlamaForm::kBoth) {
      stream_.last(to);
    } else {
      stream_.begin(to);
    }
    return to.end();
  }
  if (choices_.size() == 1 && !asked_.is_list) {
    return respond_json(to, Json(choices_.front().last));
  }
  if (form_ == LlamaForm::kBoth) {  // OpenAI's clients look for all choices in one object
    OrderedJson all = choices_.front().last;
    for (std::size_t i = 1; i < choices_.size() && all.contains("choices"); ++i) {
      all["choices"].push_back(choices_[i].last["choices"][0]);
    }
    if (!asked_.is_list) return respond_json(to, Json(all));
  }
  Json list = Json::array();
  for (const Choice& choice : choices_) list.push_back(Json(choice.last));
  respond_json(to, list);
}

void LlamaReply::on_error(const Error& error, http::Exchange& to) {
  if (!stream_.begun()) return to.respond(error_response(ErrorShape::kLlama, error));
  stream_.data(to, error_body(ErrorShape::kLlama, error));
  if (form_ == LlamaForm::kBoth) stream_.last(to);
  to.end();
}

bool LlamaReply::on_quiet(http::Exchange& to) {
  if (!asked_.fields.stream) return false;
  stream_.comment(to);
  return true;
}

}  // namespace bl::server
