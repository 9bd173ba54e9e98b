#include "server/native_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "api/request_error.h"
#include "server/error_shape.h"
#include "server/server_state.h"

namespace bl::server {
namespace {

// The stages that a list of samplers can leave out, and the member that switches each off.
struct Stage {
  std::string_view name;
  const char* member;
  double off;
};
constexpr std::array kStages{Stage{"smoothing", "smoothing_factor", 0},
                             Stage{"top-k", "top_k", 0},
                             Stage{"top-p", "top_p", 1},
                             Stage{"top-a", "top_a", 0},
                             Stage{"min-p", "min_p", 0},
                             Stage{"tail-free", "tfs", 1},
                             Stage{"typical", "typical", 1},
                             Stage{"mirostat", "mirostat_mode", 0},
                             Stage{"xtc", "xtc_probability", 0},
                             Stage{"skew", "skew", 0},
                             Stage{"adaptive-p", "adaptive_target", 1}};

}  // namespace

SamplingParams native_sampling(const ServedModel& model) {
  SamplingParams sampling = model.sampling();
  sampling.penalize_prompt = true;
  return sampling;
}

void rename_member(OrderedJson& body, const char* from, const char* to) {
  const auto found = body.find(from);
  if (found == body.end()) return;
  OrderedJson value = std::move(*found);
  body.erase(from);
  if (!value.is_null()) body[to] = std::move(value);
}

void spread_temperature(OrderedJson& body, const SamplingParams& sampling) {
  const OrderedJson* range = openai::given(body, "dynatemp_range");
  const OrderedJson* middle = openai::given(body, "temperature");
  if (range != nullptr && range->is_number() && range->get<double>() > 0) {
    const double temperature =
        middle != nullptr && middle->is_number() ? middle->get<double>() : sampling.temperature;
    const auto around = range->get<double>();
    body["min_temp"] = std::max(temperature - around, 0.0);
    body["max_temp"] = temperature + around;
  }
  body.erase("dynatemp_range");
}

void set_sampler_order(OrderedJson& body, const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const Stage& stage : kStages) {
    if (!has(stage.name)) body[stage.member] = stage.off;
  }
  if (!has("temperature")) {
    body["temperature"] = 1.0;
    body.erase("min_temp");
    body.erase("max_temp");
  }
  body["sampler_order"] = names;
}

std::int64_t read_number(const OrderedJson& body, const char* key, std::int64_t otherwise) {
  const OrderedJson* value = openai::given(body, key);
  if (value == nullptr) return otherwise;
  const double real = value->is_number() ? value->get<double>() : 0.5;
  if (real != std::floor(real) || std::abs(real) > 0x1p53) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} is {}, should be a whole number", key,
                    json_shown(*value));
  }
  return static_cast<std::int64_t>(real);
}

std::string read_text(const OrderedJson& body, const char* key) {
  const OrderedJson* value = openai::given(body, key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} is {}, should be a text", key,
                    json_shown(*value));
  }
  return value->get<std::string>();
}

std::shared_ptr<ServedModel> native_model(ServerState& state, const OrderedJson& body) {
  const OrderedJson* name = openai::given(body, "model");
  return state.model(name != nullptr && name->is_string() ? name->get<std::string>()
                                                          : std::string());
}

void check_prompt_fits(std::size_t tokens, ServedModel& model) {
  const auto count = static_cast<std::int64_t>(tokens);
  const std::int64_t context = model.engine().context();
  if (count >= context) throw openai::ContextOverflow(count, context);
}

}  // namespace bl::server
