#include "server/kobold_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/request_error.h"
#include "engine/engine.h"
#include "server/native_request.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

using openai::fail_at;
using openai::given;

// Kobold numbers its samplers; 6 is the repetition penalty, which always comes first here.
constexpr std::array<const char*, 6> kNumbered{"top-k",     "top-a",   "top-p",
                                               "tail-free", "typical", "temperature"};

void read_order(OrderedJson& body) {
  const OrderedJson* order = given(body, "sampler_order");
  if (order == nullptr) return;
  const bool is_of_numbers =
      order->is_array() && std::all_of(order->begin(), order->end(), [](const OrderedJson& one) {
        return one.is_number_integer();
      });
  if (!is_of_numbers) {
    fail_at(ErrorCode::kInvalidArgument, "sampler_order",
            "sampler_order is {}, should be a list of numbers from 0 to 6", json_shown(*order));
  }
  // The order holds for the samplers that Kobold numbers. Newer ones that are on come where Kobold
  // has them: min-p behind top-p, the others at the end.
  std::vector<std::string> names;
  for (const OrderedJson& one : *order) {
    if (one < 0 || one >= kNumbered.size()) continue;
    const std::string name = kNumbered[one.get<std::size_t>()];
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
    if (name == "top-p") names.emplace_back("min-p");
  }
  for (const char* other : {"top-k", "top-a", "top-p", "min-p", "tail-free", "typical",
                            "temperature", "smoothing", "mirostat", "xtc", "skew", "adaptive-p"}) {
    if (std::find(names.begin(), names.end(), other) == names.end()) names.emplace_back(other);
  }
  body["sampler_order"] = names;
}

// Kobold's own names and values for what sample/sampling_json.h knows by others.
OrderedJson renamed(OrderedJson body, const SamplingParams& sampling) {
  // A range of 0 is the whole text.
  const char* ranges[] = {"rep_pen_range", "repetition_penalty_range"};
  for (const char* range : ranges) {
    if (read_number(body, range, 1) == 0) body[range] = -1;
  }
  if (openai::read_flag(body, "use_default_badwordsids", false)) body["ban_eos_token"] = true;
  body.erase("use_default_badwordsids");
  // Its banned tokens are texts that never appear.
  const OrderedJson* banned = given(body, "banned_tokens");
  const bool has_texts =
      banned != nullptr && banned->is_array() && !banned->empty() && banned->front().is_string();
  if (has_texts && !body.contains("banned_strings")) {
    rename_member(body, "banned_tokens", "banned_strings");
  }
  if (read_number(body, "dry_penalty_last_n", -1) == 0) body["dry_multiplier"] = 0;
  if (openai::read_flag(body, "grammar_retain_state", false)) body.erase("grammar_retain_state");
  for (const char* other : {"rep_pen_slope", "logprobs", "max_context_length"}) body.erase(other);
  spread_temperature(body, sampling);
  read_order(body);
  return body;
}

}  // namespace

KoboldRequest KoboldRequest::read(const OrderedJson& body, std::shared_ptr<ServedModel> model) {
  KoboldRequest request;
  request.model = std::move(model);
  const SamplingParams sampling = native_sampling(*request.model);
  const std::int64_t context = request.model->engine().context();
  if (given(body, "prompt") == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, "prompt", "prompt is missing");
  }
  request.genkey = read_text(body, "genkey");
  request.trim_stop = openai::read_flag(body, "trim_stop", true);
  request.render_special = openai::read_flag(body, "render_special", false);
  OrderedJson known = renamed(body, sampling);
  for (const char* other : {"max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict"}) {
    if (!known.contains("max_length")) rename_member(known, other, "max_length");
  }
  std::int64_t most = read_number(known, "max_length", kKoboldMaxLength);
  if (most < 1) {
    fail_at(ErrorCode::kInvalidArgument, "max_length", "max_length is {}, should be at least 1",
            most);
  }
  const std::int64_t asked = read_number(body, "max_context_length", context);
  const std::int64_t room = std::clamp<std::int64_t>(asked, 2, context);
  most = std::min(most, room - 1);
  known["max_length"] = most;
  for (const char* key : {"prompt", "memory", "genkey", "stream"}) known.erase(key);
  request.fields = openai::read_request_fields(known, request.model->otherwise(), sampling);
  const Tokenizer& tokenizer = request.model->engine().tokenizer();
  std::vector<std::int32_t> ids = tokenizer.encode(read_text(body, "memory"));
  const std::vector<std::int32_t> text =
      tokenizer.encode(read_text(body, "prompt"), {.add_special = false});
  const auto space = static_cast<std::size_t>(room - most);
  ids.resize(std::min(ids.size(), space - 1));
  const std::size_t kept = std::min(text.size(), space - ids.size());
  ids.insert(ids.end(), text.end() - static_cast<std::ptrdiff_t>(kept), text.end());
  request.prompt = std::move(ids);
  return request;
}

Request KoboldRequest::engine_request() const {
  Request request = fields.engine_request(prompt);
  request.skip_special = !render_special;
  return request;
}

}  // namespace bl::server
