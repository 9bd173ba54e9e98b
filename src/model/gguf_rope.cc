// Translates rotary scaling from GGUF metadata and factor tensors into rope_scaling of config.json.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "format/gguf_dequantize.h"
#include "model/gguf_config.h"

namespace bl {
namespace {

// Reads a small tensor of divisors of the inverse frequencies, one per pair; empty if it is absent.
std::vector<float> factors(const GgufMetadata& metadata, std::string_view name,
                           std::int64_t pairs) {
  const GgufTensor* tensor = metadata.file().find_tensor(name);
  if (tensor == nullptr) return {};
  if (tensor->shape.rank() != 1 || tensor->shape[0] != pairs || !info_of(tensor->type).readable) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is {} {}, [{}] of a float type is expected",
         metadata.file().name(), name, info_of(tensor->type).name, tensor->shape.to_string(),
         pairs);
  }
  std::vector<float> values(static_cast<std::size_t>(pairs));
  dequantize_gguf(tensor->type, tensor->bytes, values);
  for (const float value : values) {
    if (!std::isfinite(value) || value <= 0) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {} holds {}, positive factors are expected",
           metadata.file().name(), name, value);
    }
  }
  return values;
}

Json as_decimals(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(shortest_decimal(value));
  return list;
}

// The rule of three wavelength ranges that transformers' "llama3" rope type computes.
struct ThreeRanges {
  double factor = 1;
  double low = 1;
  double high = 4;
  double original = 8192;

  double at(double wavelength) const {
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  }
};

// Files store the finished divisors. Recovers the rule behind them if it is the known one with its
// usual bounds 1 and 4 (the context length follows from any divisor between the extremes). If not,
// the caller writes the divisors themselves, which is equivalent.
std::optional<ThreeRanges> find_rule(const std::vector<float>& divisors, double theta) {
  ThreeRanges rule;
  rule.factor = static_cast<double>(*std::max_element(divisors.begin(), divisors.end()));
  if (rule.factor <= 1) return std::nullopt;
  const auto wavelength = [&](std::size_t i) {
    return 2 * std::numbers::pi *
           std::pow(theta, static_cast<double>(i) / static_cast<double>(divisors.size()));
  };
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double f = static_cast<double>(divisors[i]);
    if (f <= 1.0001 || f >= rule.factor * 0.9999) continue;
    const double smooth = (1 / f - 1 / rule.factor) / (1 - 1 / rule.factor);
    rule.original = std::round(wavelength(i) * (smooth * (rule.high - rule.low) + rule.low));
    break;
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double expected = rule.at(wavelength(i));
    if (std::abs(expected - static_cast<double>(divisors[i])) > 1e-4 * expected) {
      return std::nullopt;
    }
  }
  return rule;
}

Json from_divisors(const std::vector<float>& divisors, double theta, std::int64_t positions) {
  if (const auto rule = find_rule(divisors, theta)) {
    return {{"rope_type", "llama3"},
            {"factor", shortest_decimal(static_cast<float>(rule->factor))},
            {"low_freq_factor", rule->low},
            {"high_freq_factor", rule->high},
            {"original_max_position_embeddings", static_cast<std::int64_t>(rule->original)}};
  }
  const Json list = as_decimals(divisors);
  return {{"rope_type", "longrope"}, {"short_factor", list},
          {"long_factor", list},     {"attention_factor", 1.0},
          {"factor", 1.0},           {"original_max_position_embeddings", positions}};
}

void copy_number(const GgufMetadata& metadata, const char* from, const char* to, Json& scaling) {
  const Json value = metadata.evaluate(from);
  if (value.is_number()) scaling[to] = value;
}

// Builds rope_scaling from rope.scaling.* keys; null if there are none.
Json from_keys(const GgufMetadata& metadata) {
  const Json type = metadata.evaluate("rope.scaling.type");
  const Json factor = metadata.evaluate(Json::array({"rope.scaling.factor", "rope.scale_linear"}));
  const std::string word = type.is_string() ? type.get<std::string>() : "";
  const bool scales = factor.is_number() && factor.get<double>() > 0 && factor != 1;
  if (word == "linear" || (word.empty() && scales)) {
    return scales ? Json{{"rope_type", "linear"}, {"factor", factor}} : Json();
  }
  if (word == "yarn") {
    Json scaling = {{"rope_type", "yarn"}, {"factor", scales ? factor : Json(1.0)}};
    copy_number(metadata, "rope.scaling.original_context_length",
                "original_max_position_embeddings", scaling);
    copy_number(metadata, "rope.scaling.yarn_beta_fast", "beta_fast", scaling);
    copy_number(metadata, "rope.scaling.yarn_beta_slow", "beta_slow", scaling);
    copy_number(metadata, "rope.scaling.yarn_attn_factor", "attention_factor", scaling);
    return scaling;
  }
  if (word.empty() || word == "none" || word == "longrope") return nullptr;
  fail(ErrorCode::kUnsupported,
       "{}: metadata key {} is {}; none, linear, yarn and longrope are known",
       metadata.file().name(), metadata.full_key("rope.scaling.type"),
       json_text(Json(word.substr(0, 40))));
}

}  // namespace

void add_gguf_rope(const GgufMetadata& metadata, const Json& rule, Json& config) {
  const std::int64_t head_dim = metadata.head_dim();
  const std::int64_t rotary = metadata.size("rope.dimension_count").value_or(head_dim);
  if (rotary <= 0 || rotary > head_dim || rotary % 2 != 0) {
    fail(ErrorCode::kInvalidFile,
         "{}: metadata key {} is {}; an even number up to the {} of a head is expected",
         metadata.file().name(), metadata.full_key("rope.dimension_count"), rotary, head_dim);
  }
  if (rotary != head_dim) {
    double share = static_cast<double>(rotary) / static_cast<double>(head_dim);
    // Readers truncate share · head_dim to a whole number.
    if (static_cast<std::int64_t>(share * static_cast<double>(head_dim)) != rotary) {
      share = std::nextafter(share, 1.0);
    }
    config["partial_rotary_factor"] = share;
  }
  Json theta = metadata.evaluate("rope.freq_base");
  if (!theta.is_number()) theta = 10000.0;
  config["rope_theta"] = theta;
  const std::int64_t positions = metadata.required_size("context_length");
  Json scaling = from_keys(metadata);
  const std::vector<float> divisors = factors(metadata, "rope_freqs.weight", rotary / 2);
  const std::vector<float> longer = factors(metadata, "rope_factors_long.weight", rotary / 2);
  const std::vector<float> shorter = factors(metadata, "rope_factors_short.weight", rotary / 2);
  if (!longer.empty() && !shorter.empty()) {
    scaling = {{"rope_type", "longrope"},
               {"short_factor", as_decimals(shorter)},
               {"long_factor", as_decimals(longer)}};
    const Json original = metadata.evaluate("rope.scaling.original_context_length");
    config["original_max_position_embeddings"] = original.is_number() ? original : Json(positions);
    // Readers compute the attention factor from the two lengths unless they are told another one.
    copy_number(metadata, "rope.scaling.attn_factor", "attention_factor", scaling);
  } else if (!divisors.empty() && scaling.is_null()) {
    scaling = from_divisors(divisors, theta.get<double>(), positions);
  }
  if (scaling.is_object() && rule.is_object() && rule.contains("extra")) {
    for (const auto& [key, extra] : rule["extra"].items()) {
      Json value = metadata.evaluate(extra);
      if (!value.is_null()) scaling[key] = std::move(value);
    }
  }
  // Some classes scale where config.json does not say how.
  config["rope_scaling"] = scaling.is_null() ? Json{{"rope_type", "default"}} : scaling;
}

}  // namespace bl
