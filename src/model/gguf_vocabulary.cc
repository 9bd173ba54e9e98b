#include "model/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr std::size_t kMaxTokens = std::size_t{1} << 24;
constexpr std::size_t kMaxTokenBytes = 65536;

// tokenizer.ggml.model names a family of models; `tables` says which kind of vocabulary that is.
GgufVocabulary::Kind parse_kind(const GgufFile& file, std::string_view word, const Json& tables) {
  const Json models = tables.value("models", Json::object());
  std::string list;
  for (const auto& [name, kind] : models.items()) {
    if (name == word && kind == "byte_level") return GgufVocabulary::Kind::kByteLevel;
    if (name == word && kind == "sentencepiece") return GgufVocabulary::Kind::kSentencePiece;
    if (name == word && kind == "unigram") return GgufVocabulary::Kind::kUnigram;
    list += (list.empty() ? "" : ", ") + name;
  }
  fail(ErrorCode::kUnsupported, "{}: tokenizer.ggml.model is {}; {} can be read", file.name(),
       json_text(Json(word.substr(0, 40))), list);
}

}  // namespace

std::optional<GgufVocabulary> GgufVocabulary::read(const GgufMetadata& metadata,
                                                   const Json& tables) {
  const GgufFile& file = metadata.file();
  const auto model = file.text("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return std::nullopt;
  GgufVocabulary vocabulary;
  vocabulary.kind_ = parse_kind(file, *model, tables);
  vocabulary.read_tokens(file);
  vocabulary.read_pre(file, tables);
  vocabulary.read_specials(file);
  return vocabulary;
}

void GgufVocabulary::read_tokens(const GgufFile& file) {
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  if (!tokens || tokens->empty() || tokens->size() > kMaxTokens) {
    fail(ErrorCode::kInvalidFile, "{}: tokenizer.ggml.tokens has {} entries, 1 to {} are expected",
         file.name(), tokens ? tokens->size() : 0, kMaxTokens);
  }
  tokens_ = *tokens;
  filler_.resize(tokens_.size());
  types_.assign(tokens_.size(), Type::kNormal);
  if (const auto types = file.integers("tokenizer.ggml.token_type")) {
    if (types->size() != tokens_.size()) {
      fail(ErrorCode::kInvalidFile, "{}: tokenizer.ggml.token_type has {} entries for {} tokens",
           file.name(), types->size(), tokens_.size());
    }
    for (std::size_t i = 0; i < types_.size(); ++i) {
      if ((*types)[i] >= 1 && (*types)[i] <= 6) types_[i] = static_cast<Type>((*types)[i]);
    }
  }
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].size() > kMaxTokenBytes || !is_valid_utf8(tokens_[i])) {
      fail(ErrorCode::kInvalidFile, "{}: tokenizer.ggml.tokens: token {} is {}", file.name(), i,
           tokens_[i].size() > kMaxTokenBytes ? "too long" : "not UTF-8");
    }
    const bool padding = types_[i] == Type::kUnused && tokens_[i] == fmt::format("[PAD{}]", i);
    filler_[i] = padding || tokens_[i].empty() || !seen.insert(tokens_[i]).second;
  }
  if (kind_ == Kind::kByteLevel) {
    merges_ = file.texts("tokenizer.ggml.merges").value_or(merges_);
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      if (!is_valid_utf8(merges_[i]) || merges_[i].find(' ', 1) == std::string_view::npos) {
        fail(ErrorCode::kInvalidFile,
             "{}: tokenizer.ggml.merges: entry {} is not two tokens with a space between",
             file.name(), i);
      }
    }
    return;
  }
  scores_ = file.numbers("tokenizer.ggml.scores").value_or(std::vector<double>());
  if (scores_.size() != tokens_.size()) {
    fail(ErrorCode::kInvalidFile, "{}: tokenizer.ggml.scores has {} entries for {} tokens",
         file.name(), scores_.size(), tokens_.size());
  }
  for (const double score : scores_) {
    if (!std::isfinite(score)) {
      fail(ErrorCode::kInvalidFile, "{}: tokenizer.ggml.scores holds {}", file.name(), score);
    }
  }
}

void GgufVocabulary::read_specials(const GgufFile& file) {
  const auto id = [&](const char* key) -> std::optional<std::size_t> {
    const auto value = file.integer(std::string("tokenizer.ggml.") + key);
    if (!value || *value < 0 || *value >= static_cast<std::int64_t>(tokens_.size())) {
      return std::nullopt;
    }
    const auto at = static_cast<std::size_t>(*value);
    return filler_[at] ? std::nullopt : std::optional(at);
  };
  bos_ = id("bos_token_id");
  eos_ = id("eos_token_id");
  unknown_ = id("unknown_token_id");
  padding_ = id("padding_token_id");
  if (!unknown_) {
    const auto it = std::find(types_.begin(), types_.end(), Type::kUnknown);
    if (it != types_.end()) unknown_ = static_cast<std::size_t>(it - types_.begin());
  }
  const bool by_pre = pre_.value("add_bos", false);
  add_bos_ = file.boolean("tokenizer.ggml.add_bos_token")
                 .value_or(kind_ == Kind::kSentencePiece || by_pre);
  add_eos_ = file.boolean("tokenizer.ggml.add_eos_token").value_or(kind_ == Kind::kUnigram);
  add_space_prefix_ =
      file.boolean("tokenizer.ggml.add_space_prefix").value_or(kind_ != Kind::kByteLevel);
}

void GgufVocabulary::read_pre(const GgufFile& file, const Json& tables) {
  if (kind_ != Kind::kByteLevel) return;
  std::string name(file.text("tokenizer.ggml.pre").value_or("").substr(0, 40));
  if (name.empty()) name = "default";
  const Json known = tables.value("pre", Json::object());
  auto found = known.find(name);
  if (found != known.end() && found->is_string()) found = known.find(found->get<std::string>());
  if (found == known.end() || !found->is_object()) {
    std::string list;
    for (const auto& [key, value] : known.items()) list += (list.empty() ? "" : ", ") + key;
    fail(ErrorCode::kUnsupported,
         "{}: the pre-tokenizer {} (tokenizer.ggml.pre) is unknown; known are {}", file.name(),
         json_text(Json(name)), list);
  }
  pre_ = *found;
}

}  // namespace bl
