#include "text/bpe_model.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/symbol_merger.h"

namespace bl {
namespace {

constexpr std::size_t kDirectCharacters = 0x10000;
constexpr std::size_t kJoinBits = std::size_t{1} << 23;
constexpr std::size_t kWholePiece = 32;  // shorter pieces are not worth cutting

}  // namespace

class BpeModel::BpeSession final : public TokenModel::Session {
 public:
  BpeSession(const BpeModel& model, std::size_t text_bytes)
      : model_(model), cache_(text_bytes), merger_(model.merges_) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) override {
    if (model_.options_.ignore_merges) {
      const int id = model_.vocabulary().find(piece);
      if (id >= 0) {
        out.push_back(id);
        return;
      }
    }
    if (piece.size() <= kWholePiece || !model_.plain_symbols_) {
      encode_chunk(piece, out);
      return;
    }
    std::size_t begin = 0;
    CodePoint previous = code_point_at(piece, 0);
    bool previous_known = model_.character_id(previous.value) >= 0;
    for (std::size_t i = previous.size; i < piece.size();) {
      const CodePoint c = code_point_at(piece, i);
      const bool known = model_.character_id(c.value) >= 0;
      if (known && previous_known && !model_.may_join(previous.value, c.value)) {
        encode_chunk(piece.substr(begin, i - begin), out);
        begin = i;
      }
      previous = c;
      previous_known = known;
      i += c.size;
    }
    encode_chunk(piece.substr(begin), out);
  }

 private:
  void encode_chunk(std::string_view word, std::vector<std::int32_t>& out) {
    const auto known = cache_.find(word);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    symbols_.clear();
    if (model_.plain_symbols_) {
      split_plain(word);
    } else {
      split_marked(word);
    }
    flush_unknown();
    merger_.merge(symbols_);
    cache_.store(word, symbols_);
    out.insert(out.end(), symbols_.begin(), symbols_.end());
  }

  void split_plain(std::string_view word) {
    for (std::size_t i = 0; i < word.size();) {
      const CodePoint c = code_point_at(word, i);
      put(model_.character_id(c.value), word.substr(i, c.size));
      i += c.size;
    }
  }

  void split_marked(std::string_view word) {
    std::string symbol;
    for (std::size_t i = 0; i < word.size();) {
      const unsigned size = utf8_size(word[i]);
      symbol.clear();
      if (i > 0) symbol += model_.options_.continuing_prefix;
      symbol += word.substr(i, size);
      i += size;
      if (i == word.size()) symbol += model_.options_.end_of_word_suffix;
      put(model_.vocabulary().find(symbol), symbol);
    }
  }

  void put(std::int32_t id, std::string_view symbol) {
    if (id >= 0) {
      flush_unknown();
      symbols_.push_back(id);
      return;
    }
    // An unknown token that is pending stays so while bytes are put, as in the reference.
    if (model_.options_.byte_fallback && model_.bytes_.append(symbol, symbols_)) return;
    if (model_.unknown_id_ < 0) return;  // without an unknown token, unknown text vanishes
    if (!model_.options_.fuse_unknown) flush_unknown();
    unknown_pending_ = true;
  }

  void flush_unknown() {
    if (unknown_pending_) symbols_.push_back(model_.unknown_id_);
    unknown_pending_ = false;
  }

  const BpeModel& model_;
  WordCache cache_;
  SymbolMerger merger_;
  std::vector<std::int32_t> symbols_;
  bool unknown_pending_ = false;
};

BpeModel::BpeModel(Vocabulary vocabulary,
                   const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                   BpeOptions options, std::string_view where)
    : TokenModel(std::move(vocabulary)), options_(std::move(options)), bytes_(this->vocabulary()) {
  if (options_.unknown_token) {
    unknown_id_ = this->vocabulary().find(*options_.unknown_token);
    // A token that is named but absent counts as no token: most texts never need it.
  }
  plain_symbols_ = options_.continuing_prefix.empty() && options_.end_of_word_suffix.empty();
  add_merges(merges, where);
}

void BpeModel::add_merges(const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                          std::string_view where) {
  merges_.reserve(merges.size());
  std::vector<bool> is_merged(static_cast<std::size_t>(vocabulary().id_limit()));
  std::string whole;
  const auto id_of = [&](std::string_view token, std::size_t rank) {
    const int id = vocabulary().find(token);
    if (id < 0) {
      fail(ErrorCode::kInvalidFile,
           "{}[{}]: '{}' is not in the vocabulary; a merge needs both halves "
           "and the whole there",
           where, rank, token.substr(0, 100));
    }
    return id;
  };
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    std::string_view tail = right;
    if (tail.substr(0, options_.continuing_prefix.size()) == options_.continuing_prefix) {
      tail.remove_prefix(options_.continuing_prefix.size());
    }
    whole.assign(left);
    whole += tail;
    const int merged = id_of(whole, rank);
    merges_.add(id_of(left, rank), id_of(right, rank), {static_cast<std::uint32_t>(rank), merged});
    is_merged[static_cast<std::size_t>(merged)] = true;
  }
  learn_characters(is_merged);
}

std::size_t BpeModel::pair_bit(char32_t a, char32_t b) {
  const std::uint64_t key = static_cast<std::uint64_t>(a) << 32 | b;
  return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> (64 - 23));
}

void BpeModel::learn_characters(const std::vector<bool>& is_merged) {
  joins_.assign(kJoinBits / 64, 0);
  characters_.assign(kDirectCharacters, -1);
  for (int id = 0; id < vocabulary().id_limit(); ++id) {
    const std::string_view token = vocabulary().token(id);
    if (token.empty()) continue;
    CodePoint previous = code_point_at(token, 0);
    if (previous.size == token.size()) {
      const std::int32_t known = vocabulary().find(token);
      if (previous.value < kDirectCharacters) {
        characters_[previous.value] = known;
      } else {
        rare_characters_[previous.value] = known;
      }
    }
    if (!is_merged[static_cast<std::size_t>(id)]) continue;
    for (std::size_t i = previous.size; i < token.size();) {
      const CodePoint c = code_point_at(token, i);
      const std::size_t bit = pair_bit(previous.value, c.value);
      joins_[bit / 64] |= std::uint64_t{1} << (bit % 64);
      previous = c;
      i += c.size;
    }
  }
}

std::unique_ptr<TokenModel::Session> BpeModel::start(std::size_t text_bytes) const {
  return std::make_unique<BpeSession>(*this, text_bytes);
}

}  // namespace bl
