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
#include "sample/list_in_text.h"
#include "sample/off_values.h"

namespace bl {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Alias = std::pair<std::string_view, std::string_view>;
constexpr std::array<Alias, 33> kAliases{{
    {"rep_pen", "repetition_penalty"},
    {"repeat_penalty", "repetition_penalty"},
    {"repeat_last_n", "penalty_range"},
    {"n_predict", "max_tokens"},
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

// A text that may be a list of texts. In "stop" and "banned_strings" a text stands for itself, so
// one text in quotation marks is no list there.
Json texts_in(const Json& value, std::string_view field) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  std::optional<Json> list = list_in_text(text);
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!list || !list->is_array() || !std::all_of(list->begin(), list->end(), is_text)) return value;
  const bool is_quoted_text = list->size() == 1 && text[text.find_first_not_of(" \t\r\n")] != '[';
  const bool is_itself = field == "stop" ? is_quoted_text || list->empty()
                                         : is_quoted_text && field == "banned_strings";
  return is_itself ? value : *list;
}

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
  const bool bars = value == false || value == "-inf";  // other servers know `false`
  if (bars) {
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

  // Sets a number to its off value where that is meant. False: anything else is meant.
  template <class T>
  bool read_off(T& target) const {
    const std::optional<std::int64_t> off = off_value_of(field, value);
    if (off) target = static_cast<T>(*off);
    return off.has_value();
  }
  void read(double& target) const {
    if (read_off(target)) return;
    if (!value.is_number()) report(what, key, value, "a number");
    target = value.get<double>();
  }
  void read(bool& target) const {
    if (!value.is_boolean() && value != 0) report(what, key, value, "true or false");
    target = value == true;
  }
  void read(std::int64_t& target) const {
    if (read_off(target)) return;
    // Clients that know one kind of mirostat switch it on with `true`.
    const bool is_switch = field == "mirostat_mode" && value == true;
    std::int64_t number = 2;
    if (!is_switch && !read_whole(value, number)) report(what, key, value, "a whole number");
    target = number;
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
    if (!value.is_string() && !is_nothing(value)) report(what, key, value, "a string");
    target = value.is_string() ? value.get<std::string>() : std::string();
  }
  void read(std::vector<std::string>& target) const {
    target.clear();
    if (is_nothing(value)) return;
    const Json list = texts_in(value, field);
    if (list.is_string()) {
      target.push_back(list.get<std::string>());
      return;
    }
    if (!list.is_array()) report(what, key, value, "a list of strings");
    for (const Json& text : list) {
      if (!text.is_string()) report(what, key, text, "a string in a list of strings");
      // Clients fill up their lists with empty texts.
      if (!is_nothing(text)) target.push_back(text.get<std::string>());
    }
  }
  void read(std::vector<std::int32_t>& target) const {
    target.clear();
    const Json list = tokens_of("a list of token ids");
    for (const Json& id : list) {
      if (!read_id(id, target.emplace_back())) report(what, key, id, "a token id in a list of ids");
    }
  }
  // Reads a list that may have token ids and texts of tokens. An empty list of allowed tokens
  // allows all.
  void read(std::vector<std::int32_t>& ids, std::vector<std::string>& pieces) const {
    ids.clear();
    pieces.clear();
    const Json list = tokens_of("a list of token ids and strings");
    for (const Json& token : list) {
      if (token.is_string()) {
        pieces.push_back(token.get<std::string>());
      } else if (!read_id(token, ids.emplace_back())) {
        report(what, key, token, "a token id or a string in a list of tokens");
      }
    }
  }
  void read(std::vector<TokenBias>& target) const {
    target.clear();
    if (is_nothing(value)) return;
    std::optional<Json> held;
    if (value.is_string()) held = list_in_text(value.get_ref<const std::string&>());
    const Json& biases = held ? *held : value;
    if (!biases.is_object() && !biases.is_array()) {
      report(what, key, value, "an object that maps token ids to numbers");
    }
    if (biases.is_array()) {
      for (const Json& pair : biases) {
        TokenBias& entry = target.emplace_back();
        if (!pair.is_array() || pair.size() != 2 || !read_id(pair[0], entry.id) ||
            !read_bias(pair[1], entry.bias)) {
          report(what, key, pair, "a pair [token id, number]");
        }
      }
      return;
    }
    for (const auto& [id, bias] : biases.items()) {
      TokenBias& entry = target.emplace_back();
      if (!read_id(std::string_view(id), entry.id)) {
        report(what, key, Json(id), "a token id as the name of a member");
      }
      if (!read_bias(bias, entry.bias)) report(what, key, bias, "a number for each token");
    }
  }

  // Returns the value of a field that lists tokens as an array. It may be a text that holds the
  // list as JSON, or ids separated by commas.
  Json tokens_of(std::string_view right) const {
    if (is_nothing(value)) return Json::array();
    if (value.is_array()) return value;
    if (!value.is_string()) report(what, key, value, right);
    const auto& text = value.get_ref<const std::string&>();
    std::optional<Json> list = list_in_text(text);
    if (list && list->is_array()) return *std::move(list);
    std::vector<std::int32_t> ids;
    read_written_ids(text, ids);
    return ids;
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
  if (is_nothing(at.value)) return;
  const Json list = texts_in(at.value, at.field);
  if (list.is_string()) {
    params.stop_strings.push_back(list.get<std::string>());
    return;
  }
  if (!list.is_array()) {
    report(at.what, at.key, at.value, "a string, or a list of strings and token ids");
  }
  for (const Json& item : list) {
    if (item.is_string()) {
      if (!is_nothing(item)) params.stop_strings.push_back(item.get<std::string>());
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
  if (is_nothing(value)) return Json::array();
  const std::string_view field = sampling_key(key);
  IdListFinder finder{field};
  SamplingParams params;
  params.visit_rest(finder);
  if (finder.found && value.is_string()) {
    return FieldReader{.what = what, .key = key, .field = field, .value = value}.tokens_of("");
  }
  Json list = texts_in(value, field);
  return list.is_array() ? list : Json::array({value});
}

std::vector<std::string> read_sampling(const Json& object, std::string_view what,
                                       UnknownKeys unknown, SamplingParams& params) {
  if (!object.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: should be a JSON object of sampling parameters", what);
  }
  std::vector<std::string> set;
  // "stop" is read last, because it appends to stop_tokens, which stop_token_ids replaces.
  std::vector<FieldReader> stops;
  const auto read_again = [&](std::string_view field, auto&& read) {
    // If two names of a field could have different values, the order of keys would decide.
    const SamplingParams before = params;
    read();
    if (params == before) return;
    fail(ErrorCode::kInvalidArgument,
         "{}: {} is given twice, under two of its names, with different values", what, field);
  };
  for (const auto& [key, value] : object.items()) {
    const std::string_view field = sampling_key(key);
    if (value.is_null() && (unknown == UnknownKeys::kIgnore || is_sampling_key(key))) continue;
    FieldReader reader{.what = what, .key = key, .field = field, .value = value};
    const bool is_again = std::find(set.begin(), set.end(), field) != set.end();
    if (field == "stop") {
      stops.push_back(reader);
      if (!is_again) set.emplace_back(field);
    } else if (is_again) {
      read_again(field, [&] { read_field(reader, params); });
    } else if (read_field(reader, params)) {
      set.emplace_back(field);
    } else if (unknown == UnknownKeys::kRefuse) {
      report_unknown(what, key, all_keys());
    }
  }
  const std::vector<std::int32_t> stop_tokens = params.stop_tokens;
  for (const FieldReader& stop : stops) {
    const auto read = [&] {
      params.stop_tokens = stop_tokens;
      read_stop(stop, params);
    };
    if (&stop == &stops.front()) {
      read();
    } else {
      read_again("stop", read);
    }
  }
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
