#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/tokenizer_parts.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxFile = 1u << 30;
constexpr std::size_t kMaxText = std::size_t{1}
                                 << 30;  // so that positions in a text fit in 32 bits

// The names of sentencepiece models in model folders.
constexpr std::array kModelFiles = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                                    "sentencepiece.model"};

TokenizerConfig config_from(std::string_view json, std::string_view name) {
  TokenizerConfig config;
  if (!json.empty()) config.read_tokenizer_config(json, fmt::format("{}: tokenizer_config", name));
  return config;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path json = folder / "tokenizer.json";
  if (std::filesystem::is_regular_file(json)) {
    return std::unique_ptr<Tokenizer>(new Tokenizer(parse_tokenizer_json(
        read_file(json, kMaxFile), TokenizerConfig::from_folder(folder), json.string())));
  }
  for (const char* file : kModelFiles) {
    const std::filesystem::path model = folder / file;
    if (!std::filesystem::is_regular_file(model)) continue;
    return std::unique_ptr<Tokenizer>(new Tokenizer(parse_sentencepiece(
        read_file(model, kMaxFile), TokenizerConfig::from_folder(folder), model.string())));
  }
  fail(ErrorCode::kNotFound,
       "{}: there is no tokenizer in the folder; expected tokenizer.json or tokenizer.model",
       folder.string());
}

bool Tokenizer::is_in(const std::filesystem::path& folder) {
  return std::filesystem::is_regular_file(folder / "tokenizer.json") ||
         std::any_of(std::begin(kModelFiles), std::end(kModelFiles), [&](const char* file) {
           return std::filesystem::is_regular_file(folder / file);
         });
}

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                                std::string_view tokenizer_config_json,
                                                std::string_view name) {
  return std::unique_ptr<Tokenizer>(new Tokenizer(parse_tokenizer_json(
      tokenizer_json, config_from(tokenizer_config_json, name), std::string(name))));
}

std::unique_ptr<Tokenizer> Tokenizer::from_sentencepiece(std::string_view model,
                                                         std::string_view tokenizer_config_json,
                                                         std::string_view name) {
  return std::unique_ptr<Tokenizer>(new Tokenizer(
      parse_sentencepiece(model, config_from(tokenizer_config_json, name), std::string(name))));
}

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::make_unique<TokenizerParts>(std::move(parts))) {
  if (!parts_->post_processor) surround_by_config();
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::surround_by_config() {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> behind;
  if (parts_->config.add_bos.value_or(false)) {
    if (const auto id = bos_id()) before.push_back(*id);
  }
  if (parts_->config.add_eos.value_or(false)) {
    if (const auto id = eos_id()) behind.push_back(*id);
  }
  parts_->post_processor.emplace(std::move(before), behind);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  if (text.size() > kMaxText) {
    fail(ErrorCode::kLimit, "the text has {} bytes, but at most {} can be encoded at once",
         text.size(), kMaxText);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  const auto session = parts_->model->start(text.size());
  const bool special = options.parse_special;
  // Offsets mean nothing in text that was repaired; then nothing in it is a special token.
  const bool moved = !repaired.empty() && !options.plain.empty();
  const std::span<const std::size_t> plain = options.plain;
  const AddedTokens::Search search{.special = special && !moved, .plain = plain};
  for (const TextPart& part : parts_->added.split(text, search)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      // Normalization moves the offsets, so a run that holds one has no special token at all.
      const auto at = std::lower_bound(plain.begin(), plain.end(), part.begin);
      const bool clean = at == plain.end() || *at >= part.end;
      const TextRun run{text.substr(part.begin, part.end - part.begin), part.begin == 0,
                        search.special && clean};
      encode_text(run, session.get(), ids);
    }
  }
  return parts_->post_processor->apply(std::move(ids), options.add_special);
}

std::vector<std::size_t> Tokenizer::special_begins(std::string_view text) const {
  return parts_->added.special_begins(text);
}

void Tokenizer::encode_text(const TextRun& run, void* session,
                            std::vector<std::int32_t>& out) const {
  auto& model = *static_cast<TokenModel::Session*>(session);
  NormalizedText normalized{std::string(run.text), run.at_origin};
  if (parts_->normalizer) parts_->normalizer->apply(normalized);
  const std::vector<TextPart> parts =
      parts_->added.split(normalized.text, {.normalized = true, .special = run.parse_special});
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    PreTokens tokens;
    if (parts.size() == 1) {
      tokens.text = std::move(normalized.text);
    } else {
      tokens.text = normalized.text.substr(part.begin, part.end - part.begin);
    }
    tokens.pieces.push_back({0, tokens.text.size(), normalized.at_origin && part.begin == 0});
    if (parts_->pre_tokenizer) parts_->pre_tokenizer->apply(tokens);
    for (const PreTokens::Piece& piece : tokens.pieces) model.encode(tokens.view(piece), out);
  }
}

void Tokenizer::decode_one(std::int32_t id, bool skip_special, DecodeStage& stage) const {
  if (skip_special && is_special(id)) return;
  if (id == parts_->unknown_id && parts_->unknown_surface) {
    stage.put(*parts_->unknown_surface, true);
    return;
  }
  const std::string_view token = id_to_token(id);
  if (token.data() != nullptr) stage.put(token, true);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string out;
  const auto stage = parts_->decoder.start(out);
  for (const std::int32_t id : ids) decode_one(id, skip_special, *stage);
  stage->finish();
  return out;
}

int Tokenizer::vocab_size() const {
  return std::max(parts_->model->vocabulary().id_limit(), parts_->added.id_limit());
}

std::optional<int> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  const int id = parts_->model->vocabulary().find(token);
  return id >= 0 ? std::optional<int>(id) : std::nullopt;
}

std::string_view Tokenizer::id_to_token(int id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  return parts_->model->vocabulary().token(id);
}

bool Tokenizer::is_special(int id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr && added->special;
}

std::string Tokenizer::special_token(const std::string& name) const {
  const auto it = parts_->config.special_tokens.find(name);
  return it == parts_->config.special_tokens.end() ? std::string() : it->second;
}

std::optional<int> Tokenizer::special_id(const std::string& name) const {
  const std::string token = special_token(name);
  return token.empty() ? std::nullopt : token_to_id(token);
}

std::vector<std::pair<std::string, std::string>> Tokenizer::special_tokens() const {
  return {parts_->config.special_tokens.begin(), parts_->config.special_tokens.end()};
}

const std::vector<std::pair<std::string, std::string>>& Tokenizer::chat_templates() const {
  return parts_->config.chat_templates;
}

std::optional<std::string> Tokenizer::chat_template() const {
  for (const auto& [name, text] : chat_templates()) {
    if (name == "default") return text;
  }
  return std::nullopt;
}

}  // namespace bl
