#include "sample/off_values.h"

#include <array>
#include <limits>
#include <string>

#include "base/json.h"

namespace bl {
namespace {

constexpr double kAnything = -std::numeric_limits<double>::infinity();

struct OffValue {
  std::string_view field;
  std::int64_t value = 0;
  double from = 0;  // numbers in [from, 0) mean the same
};
constexpr std::array<OffValue, 27> kOffValues{{
    {"repetition_penalty", 1},
    {"presence_penalty"},
    {"frequency_penalty"},
    {"penalty_range", -1},
    {"repetition_decay"},
    {"dry_multiplier"},
    {"dry_range"},
    {"min_temp"},
    {"max_temp"},
    {"smoothing_factor"},
    {"top_n_sigma", 0, kAnything},
    {"top_k", 0, kAnything},
    {"top_p", 1},
    {"top_a"},
    {"min_p"},
    {"tfs", 1},
    {"typical", 1},
    {"mirostat_mode"},
    {"xtc_probability"},
    {"skew"},
    {"adaptive_target", 1, kAnything},
    {"cfg_scale", 1},
    {"max_tokens", 0, -1},
    {"min_tokens"},
    {"best_of"},
    {"top_logprobs"},
    {"loop_detect_window"},
}};

}  // namespace

std::optional<std::int64_t> off_value_of(std::string_view field, const Json& value) {
  for (const OffValue& off : kOffValues) {
    if (off.field != field) continue;
    const double number = value.is_number() ? value.get<double>() : 0;
    // text-generation-webui has 0 for "off" here. Nobody aims at tokens of no probability.
    const bool is_zero = field == "adaptive_target" && value == 0;
    const bool is_off = value == false || is_zero || (number < 0 && number >= off.from);
    if (is_off) return off.value;
  }
  return std::nullopt;
}

bool is_nothing(const Json& value) {
  return value == false || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

}  // namespace bl
