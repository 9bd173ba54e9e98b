#include "sample/sampling_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Alias = std::pair<std::string_view, std::string_view>;
constexpr std::array<Alias, 30> kAliases{{
    {"rep_pen", "repetition_penalty"},
    {"token_repetition_penalty", "repetition_penalty"},
    {"token_repetition_decay", "repetition_decay"},
    {"token_presence_penalty", "presence_penalty"},
    {"token_frequency_penalty", "frequency_penalty"},
    {"repetition_range", "penalty_range"},
    {"repetition_penalty_range", "penalty_range"},
    {"rep_pen_range", "penalty_range"},
    {"token_repetition_range", "penalty_range"},
    {"dry_penalty_last_n", "dry_range"},
    {"typical_p", "typical"},
    {"tfs_z", "tfs"},
    {"nsigma", "top_n_sigma"},
    {"mirostat", "mirostat_mode"},
    {"dynatemp_low", "min_temp"},
    {"dynatemp_high", "max_temp"},
    {"dynatemp_exponent", "temp_exponent"},
    {"max_completion_tokens", "max_tokens"},
    {"max_length", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"min_length", "min_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"custom_token_bans", "banned_tokens"},
    {"allowed_token_ids", "allowed_tokens"},
    {"ignore_eos", "ban_eos_token"},
    {"stop_sequence", "stop"},
    {"stop_sequences", "stop"},
    {"token_bias", "logit_bias"},
    {"guidance_scale", "cfg_scale"},
    {"sampler_seed", "seed"},
}};

[[noreturn]] void report(std::string_view what, std::string_view key, const Json& value,
                         std::string_view right) {
  fail(ErrorCode::kInvalidArgument, "{}: {} is {}, should be {}", what, key, json_shown(value),
       right);
}

[[noreturn]] void report_unknown(std::string_view what, const std::string& key,
                                 const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // comparing names takes time with their length
  const std::string near = key.size() <= kLongest ? nearest_name(key, names) : std::string();
  fail(ErrorCode::kInvalidArgument, "{}: {} is not a sampling parameter{}", what, json_shown(key),
       near.empty() ? "" : "; did you mean " + near + "?");
}

// Reads a whole number, which may be written as 50.0.
bool read_whole(const Json& value, std::int64_t& number) {
  if (value.is_number_unsigned()) {
    const auto wide = value.get<std::uint64_t>();
    if (wide > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
    number = static_cast<std::int64_t>(wide);
    return true;
  }
  if (value.is_number_integer()) {
    number = value.get<std::int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const double real = value.get<double>();
  if (!(std::abs(real) < 0x1p53) || real != std::floor(real)) return false;
  number = static_cast<std::int64_t>(real);
  return true;
}

bool read_id(const Json& value, std::int32_t& id) {
  std::int64_t number = 0;
  if (!read_whole(value, number)) return false;
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) return false;
  id = static_cast<std::int32_t>(number);
  return true;
}

bool read_id(std::string_view text, std::int32_t& id) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size() && id >= 0;
}

bool read_bias(const Json& value, double& bias) {
  if (value.is_string() && value.get_ref<const std::string&>() == "-inf") {
    bias = -kInfinity;
    return true;
  }
  if (!value.is_number()) return false;
  bias = value.get<double>();
  return true;
}

// Reads `value` into the field named `field`, whatever the field's type.
struct FieldReader {
  std::string_view what;
  std::string_view key;    // the name in the JSON object
  std::string_view field;  // the name in SamplingParams
  const Json& value;
  bool found = false;

  template <class T>
  void operator()(T& target, const OptionField& about) {
    if (found || option_key(about) != field) return;
    found = true;
    read(target);
  }

  void read(double& target) const {
    if (!value.is_number()) report(what, key, value, "a number");
    target = value.get<double>();
  }
  void read(bool& target) const {
    if (!value.is_boolean()) report(what, key, value, "true or false");
    target = value.get<bool>();
  }
  void read(std::int64_t& target) const {
    std::int64_t number = 0;
    if (!read_whole(value, number)) report(what, key, value, "a whole number");
    target = field == "top_k" && number == -1 ? 0 : number;
  }
  void read(std::uint64_t& target) const {
    if (value.is_number_unsigned()) {
      target = value.get<std::uint64_t>();
      return;
    }
    std::int64_t number = 0;
    if (!read_whole(value, number)) report(what, key, value, "a whole number");
    if (number != -1) target = static_cast<std::uint64_t>(number);
  }
  void read(std::string& target) const {
    if (!value.is_string()) report(what, key, value, "a string");
    target = value.get<std::string>();
  }
  void read(std::vector<std::string>& target) const {
    target.clear();
    if (value.is_string()) {
      target.push_back(value.get<std::string>());
      return;
    }
    if (!value.is_array()) report(what, key, value, "a list of strings");
    for (const Json& text : value) {
      if (!text.is_string()) report(what, key, text, "a string in a list of strings");
      target.push_back(text.get<std::string>());
    }
  }
  void read(std::vector<std::int32_t>& target) const {
    target.clear();
    if (value.is_string()) {
      read_written_ids(value.get_ref<const std::string&>(), target);
      return;
    }
    if (!value.is_array()) report(what, key, value, "a list of token ids");
    for (const Json& id : value) {
      if (!read_id(id, target.emplace_back())) report(what, key, id, "a token id in a list of ids");
    }
  }
  // Reads a list that may have token ids and texts of tokens.
  void read(std::vector<std::int32_t>& ids, std::vector<std::string>& pieces) const {
    ids.clear();
    pieces.clear();
    if (value.is_string()) {
      read_written_ids(value.get_ref<const std::string&>(), ids);
    } else if (!value.is_array()) {
      report(what, key, value, "a list of token ids and strings");
    } else {
      for (const Json& token : value) {
        if (token.is_string()) {
          pieces.push_back(token.get<std::string>());
        } else if (!read_id(token, ids.emplace_back())) {
          report(what, key, token, "a token id or a string in a list of tokens");
        }
      }
    }
    // An empty list would allow no token; leaving the field out allows all.
    if (!ids.empty() || !pieces.empty() || field != "allowed_tokens") return;
    report(what, key, value, "a list of at least one token, or left out to allow all");
  }
  void read(std::vector<TokenBias>& target) const {
    target.clear();
    if (!value.is_object() && !value.is_array()) {
      report(what, key, value, "an object that maps token ids to numbers");
    }
    if (value.is_array()) {
      for (const Json& pair : value) {
        TokenBias& entry = target.emplace_back();
        if (!pair.is_array() || pair.size() != 2 || !read_id(pair[0], entry.id) ||
            !read_bias(pair[1], entry.bias)) {
          report(what, key, pair, "a pair [token id, number]");
        }
      }
      return;
    }
    for (const auto& [id, bias] : value.items()) {
      TokenBias& entry = target.emplace_back();
      if (!read_id(std::string_view(id), entry.id)) {
        report(what, key, Json(id), "a token id as the name of a member");
      }
      if (!read_bias(bias, entry.bias)) report(what, key, bias, "a number for each token");
    }
  }

  void read_written_ids(std::string_view text, std::vector<std::int32_t>& target) const {
    while (!text.empty()) {
      const auto comma = text.find(',');
      if (!read_id(text.substr(0, comma), target.emplace_back())) {
        report(what, key, value, "token ids separated by commas");
      }
      if (comma == text.npos) return;
      text.remove_prefix(comma + 1);
    }
  }
};

// Finds out whether a field is a list of token ids.
struct IdListFinder {
  std::string_view field;
  bool found = false;
  template <class T>
  void operator()(T&, const OptionField& about) {
    if constexpr (std::is_same_v<T, std::vector<std::int32_t>>) {
      found = found || option_key(about) == field;
    }
  }
};

void read_stop(const FieldReader& at, SamplingParams& params) {
  params.stop_strings.clear();
  if (at.value.is_string()) {
    params.stop_strings.push_back(at.value.get<std::string>());
    return;
  }
  if (!at.value.is_array()) {
    report(at.what, at.key, at.value, "a string, or a list of strings and token ids");
  }
  for (const Json& item : at.value) {
    if (item.is_string()) {
      params.stop_strings.push_back(item.get<std::string>());
    } else if (!read_id(item, params.stop_tokens.emplace_back())) {
      report(at.what, at.key, item, "a string or a token id");
    }
  }
}

void read_logprobs(const FieldReader& at, SamplingParams& params) {
  if (at.value.is_boolean()) {
    params.logprobs = at.value.get<bool>();
    return;
  }
  std::int64_t count = 0;
  if (!read_whole(at.value, count)) report(at.what, at.key, at.value, "true, false or a number");
  params.logprobs = true;
  params.top_logprobs = count;
}

// Returns whether there is such a field.
bool read_field(FieldReader& reader, SamplingParams& params) {
  if (reader.field == "logprobs") {
    read_logprobs(reader, params);
    return true;
  }
  if (reader.field == "banned_tokens") {
    reader.read(params.banned_tokens, params.banned_pieces);
    return true;
  }
  if (reader.field == "allowed_tokens") {
    reader.read(params.allowed_tokens, params.allowed_pieces);
    return true;
  }
  params.visit(reader);
  if (!reader.found) params.visit_rest(reader);
  return reader.found;
}

std::vector<std::string> all_keys() {
  SamplingParams params;
  OptionKeys keys{{"stop", "logprobs"}};
  params.visit(keys);
  params.visit_rest(keys);
  return keys.keys;
}

// Collects all fields of a visit as JSON.
struct Collector {
  Json values = Json::object();
  template <class T>
  void operator()(const T& value, const OptionField& about) {
    values[option_key(about)] = json_of(value);
  }
  template <class T>
  static Json json_of(const T& value) {
    return Json(value);
  }
  static Json json_of(const std::vector<TokenBias>& biases) {
    Json list = Json::array();
    for (const TokenBias& entry : biases) {
      list.push_back({entry.id, std::isinf(entry.bias) ? Json("-inf") : Json(entry.bias)});
    }
    return list;
  }
};

Json all_values(SamplingParams params) {
  Collector collector;
  params.visit(collector);
  params.visit_rest(collector);
  collector.values["logprobs"] = params.logprobs;
  collector.values["stop"] = params.stop_strings;
  for (const std::string& text : params.banned_pieces) {
    collector.values["banned_tokens"].push_back(text);
  }
  for (const std::string& text : params.allowed_pieces) {
    collector.values["allowed_tokens"].push_back(text);
  }
  return collector.values;
}

}  // namespace

std::string_view sampling_key(std::string_view key) {
  for (const auto& [alias, name] : kAliases) {
    if (alias == key) return name;
  }
  return key;
}

bool is_sampling_key(std::string_view key) {
  static const std::vector<std::string> kKeys = all_keys();
  return std::find(kKeys.begin(), kKeys.end(), sampling_key(key)) != kKeys.end();
}

Json listed_sampling(const Json& value, std::string_view what, const std::string& key) {
  if (value.is_array()) return value;
  const std::string_view field = sampling_key(key);
  IdListFinder finder{field};
  SamplingParams params;
  params.visit_rest(finder);
  if (!finder.found || !value.is_string()) return Json::array({value});
  std::vector<std::int32_t> ids;
  FieldReader{.what = what, .key = key, .field = field, .value = value}.read_written_ids(
      value.get_ref<const std::string&>(), ids);
  return ids;
}

std::vector<std::string> read_sampling(const Json& object, std::string_view what,
                                       UnknownKeys unknown, SamplingParams& params) {
  if (!object.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: should be a JSON object of sampling parameters", what);
  }
  std::vector<std::string> set;
  // "stop" is read last, because it appends to stop_tokens, which stop_token_ids replaces.
  std::optional<FieldReader> stop;
  for (const auto& [key, value] : object.items()) {
    const std::string_view field = sampling_key(key);
    if (value.is_null() && (unknown == UnknownKeys::kIgnore || is_sampling_key(key))) continue;
    FieldReader reader{.what = what, .key = key, .field = field, .value = value};
    const bool is_stop = field == "stop";
    if (is_stop) stop.emplace(reader);
    if (is_stop || read_field(reader, params)) {
      // If both a name and its alias were accepted, the order of keys would decide.
      if (std::find(set.begin(), set.end(), field) != set.end()) {
        fail(ErrorCode::kInvalidArgument, "{}: {} is given twice, under two of its names", what,
             field);
      }
      set.emplace_back(field);
    } else if (unknown == UnknownKeys::kRefuse) {
      report_unknown(what, key, all_keys());
    }
  }
  if (stop) read_stop(*stop, params);
  std::sort(set.begin(), set.end());
  return set;
}

Json write_sampling(const SamplingParams& params, const SamplingParams& base) {
  Json values = all_values(params);
  const Json before = all_values(base);
  for (const auto& [key, value] : before.items()) {
    if (values[key] == value) values.erase(key);
  }
  return values;
}

}  // namespace bl
