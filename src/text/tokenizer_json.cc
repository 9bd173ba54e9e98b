// Reads tokenizer.json, the file format of the Rust package `tokenizers`.

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/utf8.h"
#include "text/bpe_model.h"
#include "text/json_document.h"
#include "text/tokenizer_parts.h"
#include "text/unigram_model.h"
#include "text/word_models.h"

namespace bl {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kShownText = 100;  // bytes of a token that a message shows

class Reader {
 public:
  Reader(element root, const std::string& name, TokenizerConfig config) : name_(name) {
    parts_.config = std::move(config);
    if (root.get(root_) != simdjson::SUCCESS) refuse("", "expected an object");
  }

  TokenizerParts run() {
    parts_.model = read_model(require("model"));
    if (const auto json = component("normalizer")) {
      parts_.normalizer = make_normalizer({*json, path("normalizer")});
    }
    if (const auto json = component("pre_tokenizer")) {
      parts_.pre_tokenizer = make_pre_tokenizer({*json, path("pre_tokenizer")});
    }
    if (const auto json = component("post_processor")) {
      parts_.post_processor.emplace(ComponentReader(*json, path("post_processor")));
    }
    if (const auto json = component("decoder")) {
      parts_.decoder = Decoder(ComponentReader(*json, path("decoder")));
    }
    read_added_tokens();
    parts_.added.finish([this](std::string_view text) {
      NormalizedText normalized{std::string(text), true};
      if (parts_.normalizer) parts_.normalizer->apply(normalized);
      return normalized.text;
    });
    return std::move(parts_);
  }

 private:
  std::string path(std::string_view field) const { return fmt::format("{}: {}", name_, field); }
  template <class... Args>
  [[noreturn]] void refuse(std::string_view field, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail(ErrorCode::kInvalidFile, "{}: {}{}{}", name_, field, field.empty() ? "" : ": ",
         fmt::format(format, std::forward<Args>(args)...));
  }

  element require(const char* key) const {
    element value;
    if (root_[key].get(value) != simdjson::SUCCESS) refuse(key, "this field is missing");
    return value;
  }

  // A small part of the document for a ComponentReader; null counts as missing.
  std::optional<Json> component(const char* key) const {
    element value;
    if (root_[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return parse_json(simdjson::minify(value), path(key));
  }

  // --- models ---

  std::unique_ptr<TokenModel> read_model(element value) const {
    object model;
    if (value.get(model) != simdjson::SUCCESS) refuse("model", "expected an object");
    const std::string type = model_type(model);
    if (type == "BPE") return read_bpe(model);
    if (type == "Unigram") return read_unigram(model);
    if (type == "WordPiece") return read_word_piece(model);
    if (type == "WordLevel") {
      return std::make_unique<WordLevelModel>(read_vocabulary(model),
                                              string_or(model, "unk_token", "<unk>"));
    }
    fail(ErrorCode::kUnsupported,
         "{}: model type '{}' is not known (BPE, Unigram, WordPiece and WordLevel are)", name_,
         type.substr(0, kShownText));
  }

  // Old files leave the type out; then the fields show it.
  static std::string model_type(object model) {
    std::string_view type;
    if (model["type"].get(type) == simdjson::SUCCESS) return std::string(type);
    if (model["merges"].error() == simdjson::SUCCESS) return "BPE";
    element vocabulary;
    if (model["vocab"].get(vocabulary) == simdjson::SUCCESS && vocabulary.is_array()) {
      return "Unigram";
    }
    const bool word_piece = model["continuing_subword_prefix"].error() == simdjson::SUCCESS;
    return word_piece ? "WordPiece" : "WordLevel";
  }

  std::optional<std::string> string(object model, const char* key) const {
    element value;
    if (model[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      refuse(fmt::format("model.{}", key), "expected a string");
    }
    return std::string(text);
  }
  std::string string_or(object model, const char* key, std::string otherwise) const {
    return string(model, key).value_or(std::move(otherwise));
  }
  bool flag(object model, const char* key) const {
    element value;
    if (model[key].get(value) != simdjson::SUCCESS || value.is_null()) return false;
    bool yes = false;
    if (value.get(yes) != simdjson::SUCCESS) {
      refuse(fmt::format("model.{}", key), "expected true or false");
    }
    return yes;
  }

  int checked_id(element value, std::string_view token) const {
    std::uint64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id > static_cast<std::uint64_t>(Vocabulary::kMaxId)) {
      refuse("model.vocab", "the id of '{}' is {}; expected 0 to {}", token.substr(0, kShownText),
             std::string(simdjson::minify(value)).substr(0, 40), Vocabulary::kMaxId);
    }
    return static_cast<int>(id);
  }

  Vocabulary read_vocabulary(object model) const {
    object entries;
    if (model["vocab"].get(entries) != simdjson::SUCCESS) {
      refuse("model.vocab", "expected an object of tokens and ids");
    }
    Vocabulary vocabulary;
    vocabulary.reserve(entries.size());
    for (const auto entry : entries) vocabulary.add(entry.key, checked_id(entry.value, entry.key));
    return vocabulary;
  }

  std::unique_ptr<TokenModel> read_bpe(object model) const {
    BpeOptions options;
    options.unknown_token = string(model, "unk_token");
    options.continuing_prefix = string_or(model, "continuing_subword_prefix", "");
    options.end_of_word_suffix = string_or(model, "end_of_word_suffix", "");
    options.fuse_unknown = flag(model, "fuse_unk");
    options.byte_fallback = flag(model, "byte_fallback");
    options.ignore_merges = flag(model, "ignore_merges");
    return std::make_unique<BpeModel>(read_vocabulary(model), read_merges(model),
                                      std::move(options), path("model.merges"));
  }

  // Reads merges, each "left right" or ["left", "right"]. The views live as long as the document.
  std::vector<std::pair<std::string_view, std::string_view>> read_merges(object model) const {
    array list;
    if (model["merges"].get(list) != simdjson::SUCCESS) {
      refuse("model.merges", "expected a list of merges");
    }
    std::vector<std::pair<std::string_view, std::string_view>> merges;
    merges.reserve(list.size());
    for (element item : list) {
      std::string_view line;
      if (item.get(line) == simdjson::SUCCESS) {
        if (line.substr(0, 8) == "#version") continue;
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos ||
            line.find(' ', space + 1) != std::string_view::npos) {
          refuse("model.merges",
                 "entry {} is '{}'; expected two tokens with one space between them", merges.size(),
                 line.substr(0, kShownText));
        }
        merges.emplace_back(line.substr(0, space), line.substr(space + 1));
        continue;
      }
      array pair;
      std::string_view left;
      std::string_view right;
      if (item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
          pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
        refuse("model.merges", "entry {} is neither \"left right\" nor [\"left\", \"right\"]",
               merges.size());
      }
      merges.emplace_back(left, right);
    }
    return merges;
  }

  std::unique_ptr<TokenModel> read_unigram(object model) const {
    array list;
    if (model["vocab"].get(list) != simdjson::SUCCESS) {
      refuse("model.vocab", "expected a list of [token, score]");
    }
    Vocabulary vocabulary;
    vocabulary.reserve(list.size());
    UnigramModel::Options options;
    double lowest = std::numeric_limits<double>::infinity();
    int id = 0;
    for (element item : list) {
      array pair;
      std::string_view token;
      double score = 0;
      if (id > Vocabulary::kMaxId || item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
          pair.at(0).get(token) != simdjson::SUCCESS ||
          pair.at(1).get(score) != simdjson::SUCCESS) {
        refuse("model.vocab", "entry {} is not [token, score]", id);
      }
      vocabulary.add(token, id++);
      options.scores.push_back(score);
      lowest = std::min(lowest, score);
    }
    options.unknown_score = lowest - UnigramModel::kUnknownPenalty;
    options.byte_fallback = flag(model, "byte_fallback");
    element unknown;
    if (model["unk_id"].get(unknown) == simdjson::SUCCESS && !unknown.is_null()) {
      options.unknown_id = checked_id(unknown, "unk_id");
      if (*options.unknown_id >= id) {
        refuse("model.unk_id", "it is {}, but the vocabulary has {} tokens", *options.unknown_id,
               id);
      }
    }
    return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(options));
  }

  std::unique_ptr<TokenModel> read_word_piece(object model) const {
    WordPieceModel::Options options;
    options.unknown_token = string_or(model, "unk_token", options.unknown_token);
    options.continuing_prefix =
        string_or(model, "continuing_subword_prefix", options.continuing_prefix);
    element most;
    if (model["max_input_chars_per_word"].get(most) == simdjson::SUCCESS && !most.is_null()) {
      std::uint64_t characters = 0;
      if (most.get(characters) != simdjson::SUCCESS) {
        refuse("model.max_input_chars_per_word", "expected a whole number");
      }
      options.max_characters = characters;
    }
    return std::make_unique<WordPieceModel>(read_vocabulary(model), std::move(options));
  }

  // --- added tokens ---

  void read_added_tokens() {
    element value;
    if (root_["added_tokens"].get(value) != simdjson::SUCCESS || value.is_null()) return;
    array list;
    if (value.get(list) != simdjson::SUCCESS) refuse("added_tokens", "expected a list");
    for (element item : list) {
      AddedToken token;
      std::string_view content;
      std::uint64_t id = 0;
      if (item["content"].get(content) != simdjson::SUCCESS ||
          item["id"].get(id) != simdjson::SUCCESS) {
        refuse("added_tokens", "an entry lacks its \"content\" or its \"id\"");
      }
      if (content.empty()) continue;
      if (content.size() > AddedTokens::kMaxContent ||
          id > static_cast<std::uint64_t>(Vocabulary::kMaxId)) {
        refuse("added_tokens", "'{}' has {} bytes and id {}; at most {} and {} are allowed",
               to_valid_utf8(content.substr(0, kShownText)), content.size(), id,
               AddedTokens::kMaxContent, Vocabulary::kMaxId);
      }
      token.content = std::string(content);
      token.id = added_id(content);
      token.single_word = item_flag(item, "single_word", false);
      token.lstrip = item_flag(item, "lstrip", false);
      token.rstrip = item_flag(item, "rstrip", false);
      token.special = item_flag(item, "special", false);
      token.normalized = item_flag(item, "normalized", !token.special);
      parts_.added.add(std::move(token));
    }
  }

  // The reference numbers tokens itself, whatever ids the file gives them: a token that the model
  // knows has the model's id, any other the next id behind all others.
  int added_id(std::string_view content) {
    const Vocabulary& known = parts_.model->vocabulary();
    if (const AddedToken* same = parts_.added.find(content)) return same->id;
    if (const int id = known.find(content); id >= 0) return id;
    const int id = std::max(static_cast<int>(known.size()), parts_.added.id_limit());
    if (id > Vocabulary::kMaxId)
      refuse("added_tokens", "there are more than {} tokens", Vocabulary::kMaxId);
    return id;
  }

  bool item_flag(element item, const char* key, bool otherwise) const {
    element value;
    if (item[key].get(value) != simdjson::SUCCESS || value.is_null()) return otherwise;
    bool yes = false;
    if (value.get(yes) != simdjson::SUCCESS) {
      refuse(fmt::format("added_tokens: {}", key), "expected true or false");
    }
    return yes;
  }

  object root_;
  const std::string& name_;
  TokenizerParts parts_;
};

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view json, TokenizerConfig config,
                                    const std::string& name) {
  const JsonDocument document(json, name);
  return Reader(document.root(), name, std::move(config)).run();
}

}  // namespace bl
