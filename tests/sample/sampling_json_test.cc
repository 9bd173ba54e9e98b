#include "sample/sampling_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "sample/sampling_preset.h"

namespace bl {
namespace {

SamplingParams read(const std::string& text, UnknownKeys unknown = UnknownKeys::kRefuse) {
  SamplingParams params;
  read_sampling(parse_json(text, "test"), "the request", unknown, params);
  return params;
}

std::string error_of(const std::string& text) {
  try {
    const SamplingParams params = read(text);
    validate(params);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SamplingJson, ReadsFieldsAndAliases) {
  const SamplingParams params = read(R"({
    "temperature": 1, "top_k": 40.0, "rep_pen": 1.2, "typical_p": 0.9, "temperature_last": true,
    "mirostat": 2, "custom_token_bans": "3, 5,7", "logit_bias": {"12": -100, "7": "-inf"},
    "stop": ["###", 2, "\n\n"], "logprobs": 5, "seed": -3, "max_completion_tokens": 64,
    "dry_sequence_breakers": "x", "min_p": null, "n": 2, "ignore_eos": true})");
  EXPECT_EQ(params.temperature, 1);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.repetition_penalty, 1.2);
  EXPECT_EQ(params.typical, 0.9);
  EXPECT_TRUE(params.temperature_last);
  EXPECT_EQ(params.mirostat_mode, 2);
  EXPECT_EQ(params.banned_tokens, (std::vector<std::int32_t>{3, 5, 7}));
  ASSERT_EQ(params.logit_bias.size(), 2u);
  EXPECT_EQ(params.logit_bias[0], (TokenBias{12, -100}));
  EXPECT_EQ(params.logit_bias[1], (TokenBias{7, -std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(params.stop_strings, (std::vector<std::string>{"###", "\n\n"}));
  EXPECT_EQ(params.stop_tokens, (std::vector<std::int32_t>{2}));
  EXPECT_TRUE(params.logprobs);
  EXPECT_EQ(params.top_logprobs, 5);
  EXPECT_EQ(params.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(params.max_tokens, 64);
  EXPECT_EQ(params.dry_sequence_breakers, (std::vector<std::string>{"x"}));
  EXPECT_EQ(params.min_p, SamplingParams{}.min_p);
  EXPECT_TRUE(params.ban_end_tokens);
  EXPECT_NO_THROW(validate(params));
  const SamplingParams stops = read(R"({"stop": ["a", 5], "stop_token_ids": [7]})");
  EXPECT_EQ(stops.stop_strings, (std::vector<std::string>{"a"}));
  EXPECT_EQ(stops.stop_tokens, (std::vector<std::int32_t>{7, 5}));
  EXPECT_EQ(read(R"({"top_k": -1})").top_k, 0);
  EXPECT_TRUE(read(R"({"allowed_tokens": null, "banned_tokens": []})").allowed_tokens.empty());
  EXPECT_EQ(read(R"({"seed": -1})").seed, SamplingParams{}.seed);
  EXPECT_EQ(read(R"({"seed": 18446744073709551615})").seed, ~std::uint64_t{0});
}

// A text alone is ids with commas between them, as it always was.
TEST(SamplingJson, TokensMayBeGivenByTheirTexts) {
  const std::string text = R"({"allowed_tokens": [" yes", 7, "12"], "banned_tokens": ["\n"]})";
  const SamplingParams params = read(text);
  EXPECT_EQ(params.allowed_tokens, (std::vector<std::int32_t>{7}));
  EXPECT_EQ(params.allowed_pieces, (std::vector<std::string>{" yes", "12"}));
  EXPECT_EQ(params.banned_pieces, (std::vector<std::string>{"\n"}));
  EXPECT_TRUE(params.banned_tokens.empty());
  EXPECT_NO_THROW(validate(params));
  const Json written = write_sampling(params, {});
  SamplingParams again;
  read_sampling(written, "test", UnknownKeys::kRefuse, again);
  EXPECT_EQ(again, params);
  EXPECT_EQ(read(R"({"banned_tokens": "12"})").banned_tokens, (std::vector<std::int32_t>{12}));
  // A later source replaces the whole list.
  read_sampling(parse_json(R"({"allowed_tokens": [3]})", "test"), "test", UnknownKeys::kRefuse,
                again);
  EXPECT_TRUE(again.allowed_pieces.empty());
}

// What TabbyAPI, text-generation-webui, llama-server, KoboldCpp, vLLM and their clients send for a
// sampler or a limit that is not wanted.
TEST(SamplingJson, WhatIsOffElsewhereIsOffHere) {
  SamplingParams off = SamplingParams::plain();
  for (const char* text :
       {R"({"repetition_penalty": false, "presence_penalty": false, "frequency_penalty": 0})",
        R"({"dry_multiplier": 0, "dry_base": 0, "dry_allowed_length": 0, "dry_range": 0})",
        R"({"dry_multiplier": false})",
        R"({"mirostat": false})",
        R"({"mirostat_mode": 0})",
        R"({"top_k": -1})",
        R"({"top_k": 0})",
        R"({"top_k": -40})",
        R"({"top_k": false})",
        R"({"top_p": false, "min_p": false, "top_a": false, "tfs": false, "typical_p": false})",
        R"({"top_n_sigma": -1.0})",
        R"({"nsigma": 0})",
        R"({"adaptive_target": -1})",
        R"({"adaptive_target": 0})",
        R"({"adaptive_target": 1, "adaptive_decay": 1})",
        R"({"xtc_probability": 0, "xtc_threshold": 1})",
        R"({"skew": false})",
        R"({"smoothing_factor": 0, "smoothing_curve": 0})",
        R"({"temperature_last": 0})",
        R"({"min_temp": 1, "max_temp": 1, "temp_exponent": 1})",
        R"({"cfg_scale": false})",
        R"({"allowed_tokens": [], "banned_tokens": [], "banned_strings": []})",
        R"({"allowed_token_ids": "", "custom_token_bans": "", "banned_strings": ""})",
        R"({"allowed_tokens": false, "banned_tokens": false, "banned_strings": false})",
        R"({"banned_strings": [""], "stop": ["", ""]})",
        R"({"banned_strings": "[]"})",
        R"({"stop": ""})",
        R"({"stop": []})",
        R"({"stop": false, "stop_token_ids": []})",
        R"({"logit_bias": {}})",
        R"({"logit_bias": []})",
        R"({"logit_bias": ""})",
        R"({"logit_bias": false})",
        R"({"negative_prompt": "", "guidance_scale": 1})",
        R"({"loop_detect_window": false, "loop_detect_repeats": 0})",
        R"({"max_tokens": -1})",
        R"({"max_tokens": false, "min_tokens": false})",
        R"({"ignore_eos": 0})",
        R"({"sampler_order": []})",
        R"({"seed": -1, "xtc_ignore_tokens": ""})",
        R"({"penalty_range": false, "repetition_decay": false})"}) {
    SamplingParams params = SamplingParams::plain();
    read_sampling(parse_json(text, "test"), "the request", UnknownKeys::kRefuse, params);
    EXPECT_NO_THROW(validate(params, 100)) << text;
    SamplingParams same = params;  // the values of a sampler that is off have no effect
    same.dry_base = off.dry_base;
    same.dry_allowed_length = off.dry_allowed_length;
    same.xtc_threshold = off.xtc_threshold;
    same.smoothing_curve = off.smoothing_curve;
    same.adaptive_decay = off.adaptive_decay;
    same.loop_detect_repeats = off.loop_detect_repeats;
    if (!same.dynamic_temperature()) same.min_temp = same.max_temp = 0;
    EXPECT_TRUE(same == off) << text << ": " << json_text(write_sampling(same, off));
  }
  EXPECT_EQ(read(R"({"mirostat": true})").mirostat_mode, 2);
  EXPECT_TRUE(read(R"({"dry_sequence_breakers": ""})").dry_sequence_breakers.empty());
  EXPECT_EQ(read(R"({"logit_bias": [[5, false]]})").logit_bias,
            (std::vector<TokenBias>{{5, -std::numeric_limits<double>::infinity()}}));
}

TEST(SamplingJson, ListsMayComeAsText) {
  using Texts = std::vector<std::string>;
  using Ids = std::vector<std::int32_t>;
  const auto breakers = [](const char* value) {
    return read(R"({"dry_sequence_breakers": )" + std::string(value) + "}").dry_sequence_breakers;
  };
  const Texts expected{"\n", ":"};
  EXPECT_EQ(breakers(R"(["\n", ":"])"), expected);
  EXPECT_EQ(breakers(R"("[\"\\n\", \":\"]")"), expected);
  EXPECT_EQ(breakers(R"(" \"\\n\", \":\" ")"), expected);
  EXPECT_EQ(breakers(R"("\"\\n\"")"), Texts{"\n"});
  EXPECT_EQ(breakers(R"("[]")"), Texts{});
  for (const char* plain : {"x", "\n", "[", "]", "\"", "[x]", "[1]", "1", "{}", "\"a", "a, b"}) {
    EXPECT_EQ(breakers(json_text(Json(plain)).c_str()), Texts{plain});
  }
  EXPECT_EQ(read(R"({"banned_strings": "[\"a\", \"b\"]"})").banned_strings, (Texts{"a", "b"}));
  EXPECT_EQ(read(R"({"banned_strings": "\"a\", \"b\""})").banned_strings, (Texts{"a", "b"}));
  EXPECT_EQ(read(R"({"sampler_order": "[\"top-k\"]"})").sampler_order, Texts{"top-k"});
  // In these two a single text stands for itself, whatever its characters.
  for (const char* plain : {"[1]", "\"END\"", "[", "[\"", "1, 2", "[x]", "\n", " "}) {
    const std::string value = json_text(Json(plain));
    EXPECT_EQ(read(R"({"stop": )" + value + "}").stop_strings, Texts{plain});
    EXPECT_EQ(read(R"({"banned_strings": )" + value + "}").banned_strings, Texts{plain});
  }
  EXPECT_EQ(read(R"({"stop": "[]"})").stop_strings, Texts{"[]"});
  EXPECT_EQ(read(R"({"stop": "[\"a\", \"b\"]"})").stop_strings, (Texts{"a", "b"}));
  const SamplingParams tokens = read(
      R"({"banned_tokens": "[3, \" yes\"]", "allowed_tokens": "\" no\", 7",
          "stop_token_ids": "[1,2]", "xtc_ignore_tokens": "[ ]", "logit_bias": "{\"5\": -1}"})");
  EXPECT_EQ(tokens.banned_tokens, Ids{3});
  EXPECT_EQ(tokens.banned_pieces, Texts{" yes"});
  EXPECT_EQ(tokens.allowed_tokens, Ids{7});
  EXPECT_EQ(tokens.allowed_pieces, Texts{" no"});
  EXPECT_EQ(tokens.stop_tokens, (Ids{1, 2}));
  EXPECT_TRUE(tokens.xtc_ignore_tokens.empty());
  EXPECT_EQ(tokens.logit_bias, (std::vector<TokenBias>{{5, -1}}));
  EXPECT_EQ(read(R"({"logit_bias": "[[5, -1]]"})").logit_bias, tokens.logit_bias);
  // Nested too deeply to be read, it is a text like any other.
  const std::string deep(100000, '[');
  EXPECT_EQ(read(json_text(Json{{"banned_strings", deep}})).banned_strings, Texts{deep});
}

// SillyTavern and others send what each of the servers knows that they may talk to.
TEST(SamplingJson, SeveralNamesOfAFieldMayAgree) {
  const SamplingParams params = read(
      R"({"rep_pen": 1.1, "repetition_penalty": 1.10, "max_tokens": 5, "max_new_tokens": 5.0,
          "typical": 0.5, "typical_p": 0.5, "stop": ["a", 3], "stop_sequence": ["a", 3],
          "mirostat": false, "mirostat_mode": 0, "stop_token_ids": [9]})");
  EXPECT_EQ(params.repetition_penalty, 1.1);
  EXPECT_EQ(params.stop_strings, (std::vector<std::string>{"a"}));
  EXPECT_EQ(params.stop_tokens, (std::vector<std::int32_t>{9, 3}));
  EXPECT_NE(error_of(R"({"stop": ["a"], "stop_sequence": ["b"]})").find("given twice"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"mirostat": true, "mirostat_mode": 0})").find("given twice"),
            std::string::npos);
}

TEST(SamplingJson, UnknownKeysAreRefusedOrIgnored) {
  EXPECT_EQ(read(R"({"messages": [], "top_k": 3})", UnknownKeys::kIgnore).top_k, 3);
  EXPECT_EQ(error_of(R"({"temprature": 1})"),
            "the request: \"temprature\" is not a sampling parameter; did you mean temperature?");
  EXPECT_EQ(error_of(R"({"a\nb": 1})"), R"(the request: "a\nb" is not a sampling parameter)");
  const std::string error = error_of("{\"" + std::string(1 << 20, 'x') + "\": 1}");
  EXPECT_LT(error.size(), 200u);
}

TEST(SamplingJson, WrongValuesAreNamedInOneLine) {
  const std::vector<std::pair<const char*, const char*>> kWrong{
      {R"({"temperature": "hot"})", "the request: temperature is \"hot\", should be a number"},
      {R"({"temperature": true})", "temperature is true"},
      {R"({"temperature": -2})", "temperature is -2"},
      {R"({"top_k": 1.5})", "top_k is 1.5, should be a whole number"},
      {R"({"top_k": 1e300})", "top_k is 1e+300"},
      {R"({"top_k": 18446744073709551615})", "top_k is 18446744073709551615"},
      {R"({"top_k": [1]})", "top_k is [1]"},
      {R"({"temperature_last": 1})", "temperature_last is 1, should be true or false"},
      {R"({"stop": 5})", "stop is 5"},
      {R"({"stop": [null]})", "stop is null"},
      {R"({"stop": [-1]})", "stop is -1"},
      {R"({"banned_tokens": [1, true]})",
       "banned_tokens is true, should be a token id or a string in a list of tokens"},
      {R"({"banned_tokens": [1, ""]})", "banned_tokens has an empty text"},
      {R"({"xtc_ignore_tokens": [1, "a"]})", "xtc_ignore_tokens is \"a\""},
      {R"({"banned_tokens": "1;2"})", "banned_tokens is \"1;2\""},
      {R"({"banned_tokens": [4294967296]})", "banned_tokens is 4294967296"},
      {R"({"temperature": false})", "temperature is false"},
      {R"({"dry_sequence_breakers": 3})", "dry_sequence_breakers is 3"},
      {R"({"dry_sequence_breakers": [3]})", "dry_sequence_breakers is 3"},
      {R"({"max_tokens": -2})", "max_tokens is -2"},
      {R"({"logit_bias": {"a": 1}})", "logit_bias is \"a\""},
      {R"({"logit_bias": {"1": "x"}})", "logit_bias is \"x\""},
      {R"({"logit_bias": [[1]]})", "logit_bias is [1]"},
      {R"({"logit_bias": 3})", "logit_bias is 3"},
      {R"({"seed": "abc"})", "seed is \"abc\""},
      {R"({"n": 100000000})", "n is 100000000"},
      {R"({"logprobs": "yes"})", "logprobs is \"yes\""},
      {R"({"logprobs": -1})", "top_logprobs is -1"},
      {R"({"prompt_logprobs": 1000000})", "prompt_logprobs is 1000000"},
      {R"({"top_k": 3, "typical": 0.5, "typical_p": 0.6})", "typical is given twice"},
      {R"([1, 2])", "should be a JSON object"},
  };
  for (const auto& [text, part] : kWrong) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(part), error.npos) << text << ": " << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
  std::string many = R"({"stop": [)";
  for (int i = 0; i < 5000; ++i) many += (i == 0 ? "\"s" : ",\"s") + std::to_string(i) + '"';
  EXPECT_EQ(error_of(many + "]}"), "stop lists 5000 texts; at most 256 are allowed");
}

// Sets every field of a parameter set to something random and valid.
struct Randomizer {
  std::mt19937& bits;
  double real() { return std::uniform_real_distribution<double>(0.01, 0.99)(bits); }
  template <class T>
  void operator()(T& field, const OptionField& about) {
    if (bits() % 2 == 0) set(field, option_key(about));
  }
  void set(double& field, const std::string& key) {
    field = key == "dry_base" || key == "smoothing_curve" ? 1 + real() : real();
  }
  void set(bool& field, const std::string&) { field = !field; }
  void set(std::int64_t& field, const std::string& key) {
    field = key == "mirostat_mode" ? 2 : static_cast<std::int64_t>(2 + bits() % 60);
  }
  void set(std::uint64_t& field, const std::string&) { field = bits() * std::uint64_t{bits()}; }
  void set(std::string& field, const std::string&) { field = "text \"\n" + std::to_string(bits()); }
  void set(std::vector<std::string>& field, const std::string&) { field = {"a", "\t\xc3\xa9"}; }
  void set(std::vector<std::int32_t>& field, const std::string&) {
    field = {static_cast<std::int32_t>(bits() % 100000), 3};
  }
  void set(std::vector<TokenBias>& field, const std::string&) {
    field = {{static_cast<std::int32_t>(bits() % 1000), real()},
             {4, -std::numeric_limits<double>::infinity()}};
  }
};

TEST(SamplingJson, WhatIsWrittenIsReadBack) {
  std::mt19937 bits(5);
  for (int i = 0; i < 500; ++i) {
    SamplingParams params;
    Randomizer randomizer{bits};
    params.visit(randomizer);
    params.visit_rest(randomizer);
    params.stop_strings = {"end"};
    const Json written = parse_json(json_text(write_sampling(params, SamplingParams{})), "written");
    SamplingParams again;
    read_sampling(written, "written", UnknownKeys::kRefuse, again);
    ASSERT_TRUE(again == params) << json_text(written);
  }
  EXPECT_TRUE(write_sampling(SamplingParams{}, SamplingParams{}).empty());
}

TEST(SamplingPreset, EveryShippedPresetLoads) {
  const std::vector<std::string> names = SamplingPreset::names();
  EXPECT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    const SamplingPreset preset = SamplingPreset::load(name);
    EXPECT_FALSE(preset.description().empty()) << name;
    SamplingParams params;
    preset.apply(params);
    EXPECT_NO_THROW(validate(params)) << name;
  }
  SamplingParams params;
  SamplingPreset::load("greedy").apply(params);
  EXPECT_TRUE(params.greedy());
}

TEST(SamplingPreset, DefaultsForcedValuesAndLists) {
  const SamplingPreset preset =
      SamplingPreset::parse(parse_json(R"({"description": "d", "temperature": 0.5,
                     "min_p": {"override": 0.1, "force": true},
                     "stop": {"override": ["###"], "additive": true},
                     "logit_bias": {"5": 1}})",
                                       "p"),
                            "p", "preset p");
  const Json merged = preset.merged(
      parse_json(R"({"temperature": 1.5, "min_p": 0.9, "stop": "END", "model": "m"})", "r"));
  EXPECT_EQ(merged, parse_json(R"({"temperature": 1.5, "min_p": 0.1, "stop": ["###", "END"],
                                   "model": "m", "logit_bias": {"5": 1}})",
                               "expected"));
  SamplingParams params;
  preset.apply(params);
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.min_p, 0.1);
  EXPECT_EQ(params.stop_strings, (std::vector<std::string>{"###"}));
  // An alias in the request is the same parameter.
  const SamplingPreset typical = SamplingPreset::parse(
      parse_json(R"({"typical": {"override": 0.9, "force": true}})", "p"), "p", "preset p");
  EXPECT_EQ(typical.merged(parse_json(R"({"typical_p": 0.2})", "r")),
            parse_json(R"({"typical": 0.9})", "e"));
}

// Ids in a text stay ids where they come to a list, in which texts are tokens by what they say.
TEST(SamplingPreset, IdsInATextAreAddedAsIds) {
  const SamplingPreset preset = SamplingPreset::parse(
      parse_json(R"({"banned_tokens": {"override": "5", "additive": true}})", "p"), "p",
      "preset p");
  EXPECT_EQ(preset.merged(parse_json(R"({"banned_tokens": "12, 13"})", "r")),
            parse_json(R"({"banned_tokens": [5, 12, 13]})", "e"));
  EXPECT_EQ(preset.merged(parse_json(R"({"banned_tokens": ["12"]})", "r")),
            parse_json(R"({"banned_tokens": [5, "12"]})", "e"));
  EXPECT_THROW(preset.merged(parse_json(R"({"banned_tokens": "yes"})", "r")), Error);
}

TEST(SamplingPreset, FilesFoldersAndErrors) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("bitloom-presets-" + std::to_string(std::random_device{}()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
  };
  write("mine.json", R"({"top_k": 7})");
  write("wrong.json", R"({"top_q": 7})");
  write("range.json", R"({"top_p": 7})");
  write("flags.json", R"({"top_p": {"override": 0.5, "forced": true}})");
  write("broken.json", "{");
  SamplingParams params;
  SamplingPreset::load("mine", folder).apply(params);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(SamplingPreset::load((folder / "mine.json").string()).name(), "mine");
  const auto error_of_loading = [&](const std::string& name) -> std::string {
    try {
      SamplingPreset::load(name, folder);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(error_of_loading("wrong").find("\"top_q\" is not a sampling parameter"),
            std::string::npos);
  EXPECT_NE(error_of_loading("range").find("range.json: top_p is 7"), std::string::npos);
  EXPECT_NE(error_of_loading("flags").find("\"forced\""), std::string::npos);
  EXPECT_NE(error_of_loading("broken").find("broken.json"), std::string::npos);
  EXPECT_NE(error_of_loading("absent").find("balanced, broken, creative"), std::string::npos);
  EXPECT_NE(error_of_loading("no/such.json"), "accepted");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace bl
