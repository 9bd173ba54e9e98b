#include "model/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "format/gguf_parser.h"
#include "model/gguf_vocabulary.h"

namespace bl {
namespace {

using Kind = GgufVocabulary::Kind;
using Type = GgufVocabulary::Type;

constexpr const char* kSpaceMark = "\xe2\x96\x81";  // U+2581

Json split(const Json& pattern, const char* behavior) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}
Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}
Json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}
Json sequence(const char* member, Json items) {
  if (items.empty()) return nullptr;
  if (items.size() == 1) return items[0];
  return {{"type", "Sequence"}, {member, std::move(items)}};
}

// Appends `text` as a JSON string. The vocabulary has already checked that it is UTF-8.
void append_text(std::string& out, std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

// --- merges of a vocabulary that has scores instead ---

// Trying all cuts takes quadratic time in a token's length; no real vocabulary has longer tokens.
constexpr std::size_t kMaxMergedBytes = 1024;

struct Merge {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  double score = 0;  // of the merged token
};

// Every way to cut a token into two tokens is a merge, ordered by the score of the token. Ties are
// ordered as in transformers' converter of sentencepiece models, so that the result agrees with the
// tokenizer.json that such models are published with.
std::vector<Merge> merges_from_scores(const GgufVocabulary& vocabulary) {
  const auto tokens = vocabulary.tokens();
  std::unordered_map<std::string_view, std::uint32_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!vocabulary.is_filler(i)) ids.emplace(tokens[i], static_cast<std::uint32_t>(i));
  }
  std::vector<Merge> merges;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Type type = vocabulary.type(i);
    const std::string_view token = tokens[i];
    if (vocabulary.is_filler(i) || type == Type::kControl || type == Type::kUnknown ||
        type == Type::kByte || token.size() > kMaxMergedBytes) {
      continue;
    }
    const std::size_t begin = merges.size();
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      if (is_continuation(token[cut])) continue;
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({left->second, right->second, vocabulary.scores()[i]});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(begin), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::pair(a.left, a.right) < std::pair(b.left, b.right);
              });
  }
  std::stable_sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    const std::size_t a_left = count_code_points(tokens[a.left]);
    const std::size_t b_left = count_code_points(tokens[b.left]);
    if (a_left != b_left) return a_left > b_left;
    return count_code_points(tokens[a.right]) > count_code_points(tokens[b.right]);
  });
  return merges;
}

// --- the parts of tokenizer.json ---

bool is_added(const GgufVocabulary& vocabulary, std::size_t id) {
  if (vocabulary.is_filler(id)) return false;
  const Type type = vocabulary.type(id);
  return type == Type::kControl || type == Type::kUserDefined || type == Type::kUnknown ||
         (type == Type::kUnused && vocabulary.kind() == Kind::kSentencePiece);
}

bool lists(const Json& names, std::string_view text) {
  return std::any_of(names.begin(), names.end(), [&](const Json& name) {
    return name.is_string() && name.get_ref<const std::string&>() == text;
  });
}

// `family`: the "tokenizer" object of the architecture.
std::string added_tokens(const GgufVocabulary& vocabulary, const Json& family) {
  const Json swallow = family.value("rstrip", Json::array());
  std::string out = "[";
  for (std::size_t i = 0; i < vocabulary.tokens().size(); ++i) {
    if (!is_added(vocabulary, i)) continue;
    const Type type = vocabulary.type(i);
    const bool special = type == Type::kControl || type == Type::kUnknown;
    out += out.size() > 1 ? ",\n" : "\n";
    out += fmt::format("{{\"id\":{},\"content\":", i);
    append_text(out, vocabulary.tokens()[i]);
    out += fmt::format(
        R"(,"single_word":false,"lstrip":false,"rstrip":{},"normalized":false,"special":{}}})",
        lists(swallow, vocabulary.tokens()[i]), special);
  }
  return out + "\n]";
}

void append_vocabulary(std::string& out, const GgufVocabulary& vocabulary) {
  out += "\"vocab\":{";
  bool first = true;
  for (std::size_t i = 0; i < vocabulary.tokens().size(); ++i) {
    if (vocabulary.is_filler(i)) continue;
    if (!first) out += ',';
    first = false;
    append_text(out, vocabulary.tokens()[i]);
    out += ':';
    out += std::to_string(i);
  }
  out += '}';
}

void append_pair(std::string& out, std::string_view left, std::string_view right) {
  out += out.back() == '[' ? "[" : ",[";
  append_text(out, left);
  out += ',';
  append_text(out, right);
  out += ']';
}

std::string bpe_model(const GgufVocabulary& vocabulary) {
  const bool byte_level = vocabulary.kind() == Kind::kByteLevel;
  const bool spaces = vocabulary.pre().value("spaces", false);
  std::string out = R"({"type":"BPE","dropout":null,"unk_token":)";
  if (vocabulary.unknown() && (!byte_level || spaces)) {
    append_text(out, vocabulary.tokens()[*vocabulary.unknown()]);
  } else {
    out += "null";
  }
  const bool fallback = !byte_level || spaces;
  out += fmt::format(R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":{},)"
                     R"("byte_fallback":{},"ignore_merges":{},)",
                     fallback, fallback, vocabulary.pre().value("ignore_merges", false));
  append_vocabulary(out, vocabulary);
  out += ",\"merges\":[";
  if (byte_level) {
    for (const std::string_view merge : vocabulary.merges()) {
      const std::size_t space = merge.find(' ', 1);
      append_pair(out, merge.substr(0, space), merge.substr(space + 1));
    }
  } else {
    for (const Merge& merge : merges_from_scores(vocabulary)) {
      append_pair(out, vocabulary.tokens()[merge.left], vocabulary.tokens()[merge.right]);
    }
  }
  return out + "]}";
}

std::string unigram_model(const GgufVocabulary& vocabulary) {
  std::string out = fmt::format(R"({{"type":"Unigram","unk_id":{},"byte_fallback":{},"vocab":[)",
                                vocabulary.unknown().value_or(0),
                                std::any_of(vocabulary.tokens().begin(), vocabulary.tokens().end(),
                                            [](auto token) { return token == "<0x00>"; }));
  for (std::size_t i = 0; i < vocabulary.tokens().size(); ++i) {
    out += i == 0 ? "[" : ",[";
    append_text(out, vocabulary.tokens()[i]);
    out += fmt::format(",{}]", vocabulary.scores()[i]);
  }
  return out + "]}";
}

std::string base64(std::string_view bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) {
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= count ? kLetters[(word >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return out;
}

Json normalizer(const GgufVocabulary& vocabulary, const GgufFile& file) {
  Json items = Json::array();
  if (vocabulary.kind() == Kind::kByteLevel) {
    if (vocabulary.pre().contains("normalizer")) {
      items.push_back({{"type", vocabulary.pre()["normalizer"]}});
    }
    if (vocabulary.pre().value("spaces", false)) items.push_back(replace(" ", kSpaceMark));
  } else if (vocabulary.kind() == Kind::kSentencePiece) {
    if (vocabulary.add_space_prefix()) {
      items.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    }
    items.push_back(replace(" ", kSpaceMark));
  } else {
    const GgufValue* map = file.find("tokenizer.ggml.precompiled_charsmap");
    const auto* array = map == nullptr ? nullptr : std::get_if<GgufValue::Array>(&map->value);
    if (array != nullptr && gguf_value_bytes(array->element) == 1 && !array->bytes.empty()) {
      const std::string_view bytes(reinterpret_cast<const char*>(array->bytes.data()),
                                   array->bytes.size());
      items.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(bytes)}});
    }
    if (file.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
      items.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
      items.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
    }
  }
  return sequence("normalizers", std::move(items));
}

Json metaspace(bool prefix) {
  return {{"type", "Metaspace"},
          {"replacement", kSpaceMark},
          {"prepend_scheme", prefix ? "always" : "never"},
          {"split", true}};
}

Json pre_tokenizer(const GgufVocabulary& vocabulary) {
  if (vocabulary.kind() == Kind::kSentencePiece) return nullptr;
  if (vocabulary.kind() == Kind::kUnigram) return metaspace(vocabulary.add_space_prefix());
  const Json& pre = vocabulary.pre();
  if (pre.value("spaces", false)) return split({{"String", " "}}, "MergedWithPrevious");
  Json items = Json::array();
  const Json patterns = pre.value("split", Json::array());
  for (const Json& pattern : patterns) items.push_back(split({{"Regex", pattern}}, "Isolated"));
  if (pre.value("digits", false)) {
    items.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  items.push_back(byte_level(patterns.empty()));
  return sequence("pretokenizers", std::move(items));
}

Json decoder(const GgufVocabulary& vocabulary) {
  if (vocabulary.kind() == Kind::kUnigram) return metaspace(vocabulary.add_space_prefix());
  if (vocabulary.kind() == Kind::kByteLevel && !vocabulary.pre().value("spaces", false)) {
    return byte_level(true);
  }
  Json items = {replace(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (vocabulary.add_space_prefix()) {
    items.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence("decoders", std::move(items));
}

Json post_processor(const GgufVocabulary& vocabulary) {
  const bool byte_level_kind =
      vocabulary.kind() == Kind::kByteLevel && !vocabulary.pre().value("spaces", false);
  if (!vocabulary.add_bos() && !vocabulary.add_eos()) {
    return byte_level_kind ? byte_level(false) : Json();
  }
  Json specials = Json::object();
  const auto special = [&](std::size_t id, int type_id) {
    const std::string text(vocabulary.tokens()[id]);
    specials[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return Json{{"SpecialToken", {{"id", text}, {"type_id", type_id}}}};
  };
  const auto around = [&](const char* name, int type_id, Json& list) {
    if (vocabulary.add_bos()) list.push_back(special(*vocabulary.bos(), type_id));
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
    if (vocabulary.add_eos()) list.push_back(special(*vocabulary.eos(), type_id));
  };
  Json single = Json::array();
  around("A", 0, single);
  Json pair = single;
  around("B", 1, pair);
  Json process = {{"type", "TemplateProcessing"},
                  {"single", single},
                  {"pair", pair},
                  {"special_tokens", specials}};
  if (!byte_level_kind) return process;
  return sequence("processors", Json::array({byte_level(false), process}));
}

Json chat_template(const GgufFile& file) {
  const auto checked = [&](const std::string& key) -> Json {
    const auto text = file.text(key);
    if (!text) return nullptr;
    return std::string(*text);
  };
  const Json plain = checked("tokenizer.chat_template");
  const auto names = file.texts("tokenizer.chat_templates");
  if (!names || names->empty()) return plain;
  Json list = Json::array();
  if (!plain.is_null()) list.push_back({{"name", "default"}, {"template", plain}});
  for (const std::string_view name : *names) {
    const Json text = checked("tokenizer.chat_template." + std::string(name));
    if (!text.is_null()) list.push_back({{"name", std::string(name)}, {"template", text}});
  }
  return list;
}

}  // namespace

std::string gguf_tokenizer_json(const GgufMetadata& metadata, const Json& tables) {
  const auto vocabulary = GgufVocabulary::read(metadata, tables);
  if (!vocabulary) return {};
  const GgufFile& file = metadata.file();
  const Json family =
      metadata.arch().tokenizer.is_object() ? metadata.arch().tokenizer : Json::object();
  std::string out = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)";
  out += added_tokens(*vocabulary, family);
  out += ",\n\"normalizer\":" + json_text(normalizer(*vocabulary, file));
  out += ",\n\"pre_tokenizer\":" + json_text(pre_tokenizer(*vocabulary));
  out += ",\n\"post_processor\":" + json_text(post_processor(*vocabulary));
  out += ",\n\"decoder\":" + json_text(decoder(*vocabulary));
  out += ",\n\"model\":";
  out += vocabulary->kind() == Kind::kUnigram ? unigram_model(*vocabulary) : bpe_model(*vocabulary);
  return out + "}\n";
}

Json gguf_tokenizer_config(const GgufMetadata& metadata, const Json& tables) {
  const auto vocabulary = GgufVocabulary::read(metadata, tables);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  if (vocabulary) {
    const auto set = [&](const char* key, std::optional<std::size_t> id) {
      if (id) config[key] = std::string(vocabulary->tokens()[*id]);
    };
    set("bos_token", vocabulary->bos());
    set("eos_token", vocabulary->eos());
    set("unk_token", vocabulary->unknown());
    set("pad_token", vocabulary->padding());
    config["add_bos_token"] = vocabulary->add_bos();
    config["add_eos_token"] = vocabulary->add_eos();
  }
  if (const auto length = metadata.size("context_length")) config["model_max_length"] = *length;
  Json chat = chat_template(metadata.file());
  if (!chat.is_null()) config["chat_template"] = std::move(chat);
  return config;
}

}  // namespace bl
