#include "text/word_models.h"

#include "base/error.h"
#include "base/utf8.h"

namespace bl {
namespace {

std::int32_t require_unknown(std::int32_t id) {
  if (id < 0) {
    fail(ErrorCode::kInvalidArgument,
         "the text has words that the vocabulary lacks, and it has no token for unknown text");
  }
  return id;
}

}  // namespace

class WordPieceModel::WordPieceSession final : public TokenModel::Session {
 public:
  explicit WordPieceSession(const WordPieceModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) override {
    const std::size_t before = out.size();
    const bool short_enough = piece.size() <= model_.options_.max_characters ||
                              count_code_points(piece) <= model_.options_.max_characters;
    if (short_enough && cover(piece, out)) return;
    out.resize(before);
    out.push_back(require_unknown(model_.unknown_id_));
  }

 private:
  bool cover(std::string_view piece, std::vector<std::int32_t>& out) const {
    for (std::size_t i = 0; i < piece.size();) {
      const auto match = (i == 0 ? model_.first_ : model_.continuing_).longest(piece, i);
      if (match.size == 0) return false;
      out.push_back(match.value);
      i += match.size;
    }
    return true;
  }

  const WordPieceModel& model_;
};

WordPieceModel::WordPieceModel(Vocabulary vocabulary, Options options)
    : TokenModel(std::move(vocabulary)),
      options_(std::move(options)),
      unknown_id_(this->vocabulary().find(options_.unknown_token)) {
  const Vocabulary& all = this->vocabulary();
  std::vector<std::pair<std::string_view, std::int32_t>> first;
  std::vector<std::pair<std::string_view, std::int32_t>> continuing;
  for (int id = 0; id < all.id_limit(); ++id) {
    const std::string_view token = all.token(id);
    if (token.data() == nullptr) continue;
    first.emplace_back(token, all.find(token));
    if (token.substr(0, options_.continuing_prefix.size()) == options_.continuing_prefix) {
      continuing.emplace_back(token.substr(options_.continuing_prefix.size()), all.find(token));
    }
  }
  first_ = ByteTrie(std::move(first));
  continuing_ = ByteTrie(std::move(continuing));
}

std::unique_ptr<TokenModel::Session> WordPieceModel::start(std::size_t) const {
  return std::make_unique<WordPieceSession>(*this);
}

class WordLevelModel::WordLevelSession final : public TokenModel::Session {
 public:
  explicit WordLevelSession(const WordLevelModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) override {
    const int id = model_.vocabulary().find(piece);
    out.push_back(id >= 0 ? id : require_unknown(model_.unknown_id_));
  }

 private:
  const WordLevelModel& model_;
};

WordLevelModel::WordLevelModel(Vocabulary vocabulary, const std::string& unknown_token)
    : TokenModel(std::move(vocabulary)), unknown_id_(this->vocabulary().find(unknown_token)) {}

std::unique_ptr<TokenModel::Session> WordLevelModel::start(std::size_t) const {
  return std::make_unique<WordLevelSession>(*this);
}

}  // namespace bl
