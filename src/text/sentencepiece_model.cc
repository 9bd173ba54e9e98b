// Builds a tokenizer from a sentencepiece model and the configuration files beside it.

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/decode_stages.h"
#include "text/scored_bpe_model.h"
#include "text/sentencepiece_proto.h"
#include "text/space_mark.h"
#include "text/tokenizer_parts.h"
#include "text/unigram_model.h"
#include "text/word_models.h"

namespace bl {
namespace {

// The normalization of sentencepiece: the charsmap by longest match, white space, the dummy prefix.
// User-defined pieces pass unchanged.
class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceProto& proto, bool prefix_once,
                          const std::string& name)
      : space_(proto.escape_whitespaces ? kSpaceMark : " "),
        squeeze_(proto.remove_extra_whitespaces),
        prefix_(proto.add_dummy_prefix && !proto.treat_whitespace_as_suffix),
        suffix_(proto.add_dummy_prefix && proto.treat_whitespace_as_suffix),
        prefix_once_(prefix_once) {
    if (!proto.charsmap.empty()) charsmap_.emplace(proto.charsmap, name);
    std::vector<std::pair<std::string_view, std::int32_t>> fixed;
    for (const auto& piece : proto.pieces) {
      if (piece.type == SentencePieceProto::Type::kUserDefined) fixed.emplace_back(piece.text, 0);
    }
    fixed_ = ByteTrie(std::move(fixed));
  }

  void apply(NormalizedText& text) const override {
    const std::string_view in = text.text;
    std::string out;
    out.reserve(in.size() + in.size() / 2);
    std::size_t i = 0;
    while (squeeze_ && i < in.size()) {
      const Part part = part_at(in, i);
      if (part.text != " ") break;
      i += part.size;
    }
    if (i == in.size()) {
      text.text.clear();
      return;
    }
    if (prefix_ && (!prefix_once_ || text.at_origin)) out.append(space_);
    bool after_space = squeeze_;
    while (i < in.size()) {
      Part part = part_at(in, i);
      while (after_space && !part.text.empty() && part.text.front() == ' ')
        part.text.remove_prefix(1);
      for (const char c : part.text) {
        if (c == ' ') {
          out.append(space_);
        } else {
          out.push_back(c);
        }
      }
      if (!part.text.empty()) after_space = squeeze_ && part.text.back() == ' ';
      i += part.size;
    }
    while (squeeze_ && out.size() >= space_.size() &&
           std::string_view(out).substr(out.size() - space_.size()) == space_) {
      out.resize(out.size() - space_.size());
    }
    if (suffix_) out.append(space_);
    text.text = std::move(out);
  }

 private:
  struct Part {
    std::string_view text;  // the normalized text
    std::size_t size;       // the bytes that it takes from the input
  };
  Part part_at(std::string_view in, std::size_t i) const {
    const std::string_view rest = in.substr(i);
    if (const auto match = fixed_.longest(in, i); match.size > 0) {
      return {rest.substr(0, match.size), match.size};
    }
    if (charsmap_) {
      if (const auto match = charsmap_->longest(rest)) return {match->replacement, match->size};
    }
    return {rest.substr(0, utf8_size(rest[0])), utf8_size(rest[0])};
  }

  std::string space_;
  bool squeeze_;
  bool prefix_;
  bool suffix_;
  bool prefix_once_;
  std::optional<Charsmap> charsmap_;
  ByteTrie fixed_;
};

using Type = SentencePieceProto::Type;

class Builder {
 public:
  Builder(const SentencePieceProto& proto, TokenizerConfig config, const std::string& name)
      : proto_(proto), name_(name) {
    parts_.config = std::move(config);
    for (std::size_t i = 0; i < proto_.pieces.size(); ++i) {
      if (proto_.pieces[i].type == Type::kUnknown) parts_.unknown_id = static_cast<int>(i);
    }
    if (parts_.unknown_id < 0) {
      fail(ErrorCode::kInvalidFile, "{}: there is no piece for unknown text (type 2)", name_);
    }
  }

  TokenizerParts run() {
    parts_.model = make_model();
    const bool prefix_once = !parts_.config.legacy.value_or(true);
    parts_.normalizer = std::make_unique<SentencePieceNormalizer>(proto_, prefix_once, name_);
    const SentencePieceStage::Options options{
        proto_.add_dummy_prefix || proto_.remove_extra_whitespaces,
        proto_.remove_extra_whitespaces};
    parts_.decoder = Decoder([options](std::unique_ptr<DecodeStage> next) {
      return std::make_unique<SentencePieceStage>(std::move(next), options);
    });
    parts_.unknown_surface = proto_.unknown_surface;
    add_tokens();
    name_special_tokens();
    return std::move(parts_);
  }

 private:
  Vocabulary vocabulary() const {
    Vocabulary out;
    out.reserve(proto_.pieces.size());
    for (std::size_t i = 0; i < proto_.pieces.size(); ++i) {
      out.add(proto_.pieces[i].text, static_cast<int>(i));
    }
    return out;
  }

  std::unique_ptr<TokenModel> make_model() const {
    switch (proto_.kind) {
      case SentencePieceProto::Kind::kBpe:
        return make_bpe();
      case SentencePieceProto::Kind::kUnigram:
        return make_unigram();
      case SentencePieceProto::Kind::kWord:
      case SentencePieceProto::Kind::kChar:
        break;
    }
    fail(ErrorCode::kUnsupported,
         "{}: word and character models of sentencepiece are not supported; BPE and unigram ones "
         "are",
         name_);
  }

  std::unique_ptr<TokenModel> make_bpe() const {
    ScoredBpeModel::Options options;
    options.byte_fallback = proto_.byte_fallback;
    options.unknown_id = parts_.unknown_id;
    for (std::size_t i = 0; i < proto_.pieces.size(); ++i) {
      const auto& piece = proto_.pieces[i];
      options.scores.push_back(piece.score);
      options.mergeable.push_back(piece.type == Type::kNormal);
      if (piece.type == Type::kUserDefined) {
        options.user_defined.push_back(static_cast<std::int32_t>(i));
      }
    }
    return std::make_unique<ScoredBpeModel>(vocabulary(), std::move(options));
  }

  std::unique_ptr<TokenModel> make_unigram() const {
    UnigramModel::Options options;
    // Only ordinary pieces count. As in sentencepiece, the highest score starts at the least
    // positive float.
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::min();
    for (const auto& piece : proto_.pieces) {
      if (piece.type != Type::kNormal) continue;
      lowest = std::min(lowest, piece.score);
      highest = std::max(highest, piece.score);
    }
    for (const auto& piece : proto_.pieces) {
      const bool fixed = piece.type == Type::kUserDefined;
      // The bonus is so high that a user-defined piece always wins.
      const double bonus =
          static_cast<double>(static_cast<float>(piece.text.size()) * highest) - 0.1;
      options.scores.push_back(fixed ? bonus : static_cast<double>(piece.score));
      options.in_text.push_back(fixed || piece.type == Type::kNormal);
    }
    options.unknown_score = lowest - static_cast<float>(UnigramModel::kUnknownPenalty);
    options.unknown_id = parts_.unknown_id;
    options.byte_fallback = proto_.byte_fallback;
    options.single_precision = true;
    options.unknown_by_text = false;
    return std::make_unique<UnigramModel>(vocabulary(), std::move(options));
  }

  // Names the special tokens that the configuration leaves open as the model file does.
  void name_special_tokens() {
    const auto name = [&](const char* key, const std::string& piece) {
      const int id = parts_.model->vocabulary().find(piece);
      if (id >= 0) parts_.config.special_tokens.try_emplace(key, piece);
    };
    name("unk_token", proto_.unk_piece);
    name("bos_token", proto_.bos_piece);
    name("eos_token", proto_.eos_piece);
    name("pad_token", proto_.pad_piece);
    if (!parts_.config.add_bos) parts_.config.add_bos = true;
  }

  void add_token(AddedToken token) {
    if (token.content.empty() || token.content.size() > AddedTokens::kMaxContent) {
      fail(ErrorCode::kInvalidFile, "{}: an added token has {} bytes; 1 to {} are allowed", name_,
           token.content.size(), AddedTokens::kMaxContent);
    }
    next_id_ = std::max(next_id_, token.id + 1);
    parts_.added.add(std::move(token));
  }

  // The tokens that the configuration names are found in text. Other control pieces are special
  // too, but their text is plain text, as in sentencepiece itself.
  void add_tokens() {
    const TokenizerConfig& config = parts_.config;
    next_id_ = static_cast<int>(proto_.pieces.size());
    std::vector<std::string> special = config.extra_special_tokens;
    for (const auto& [key, content] : config.special_tokens) special.push_back(content);
    for (AddedToken token : config.added_tokens) {
      token.special |= std::find(special.begin(), special.end(), token.content) != special.end();
      add_token(std::move(token));
    }
    for (const std::string& content : special) {
      if (content.empty() || parts_.added.find(content) != nullptr) continue;
      AddedToken token;
      token.content = content;
      const int known = parts_.model->vocabulary().find(content);
      token.id = known >= 0 ? known : next_id_;
      token.special = true;
      add_token(std::move(token));
    }
    for (std::size_t i = 0; i < proto_.pieces.size(); ++i) {
      const std::string content(proto_.pieces[i].text);
      if (proto_.pieces[i].type != Type::kControl || parts_.added.find(content) != nullptr)
        continue;
      AddedToken token;
      token.content = content;
      token.id = static_cast<int>(i);
      token.special = true;
      token.in_text = false;
      if (content.size() <= AddedTokens::kMaxContent) add_token(std::move(token));
    }
    parts_.added.finish([](std::string_view text) { return std::string(text); });
  }

  const SentencePieceProto& proto_;
  const std::string& name_;
  TokenizerParts parts_;
  int next_id_ = 0;  // the next id for a token that has none
};

}  // namespace

TokenizerParts parse_sentencepiece(std::string_view bytes, TokenizerConfig config,
                                   const std::string& name) {
  const SentencePieceProto proto = parse_sentencepiece_proto(bytes, name);
  return Builder(proto, std::move(config), name).run();
}

}  // namespace bl
