#include "text/scored_bpe_model.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/space_mark.h"
#include "text/symbol_merger.h"

namespace bl {
namespace {

// Symbols that merge with nothing are negative: user-defined pieces count down from kFrozen by id,
// unknown characters from kUnknown by code point.
constexpr std::int32_t kFrozen = -16;
constexpr std::int32_t kUnknown = -(1 << 28);

// Whether the mark of a space stands only at the beginning of `text`.
bool only_leading_marks(std::string_view text) {
  std::size_t i = 0;
  while (text.substr(i, kSpaceMark.size()) == kSpaceMark) i += kSpaceMark.size();
  return text.find(kSpaceMark, i) == std::string_view::npos;
}

}  // namespace

class ScoredBpeModel::ScoredBpeSession final : public TokenModel::Session {
 public:
  ScoredBpeSession(const ScoredBpeModel& model, std::size_t text_bytes)
      : model_(model), cache_(text_bytes), merger_(model.merges_) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) override {
    unknown_before_ = false;
    if (!model_.marks_begin_words_ || !model_.user_defined_.empty()) {
      encode_chunk(piece, out);
      return;
    }
    // No piece spans from a character to a mark behind it, so nothing merges across that place.
    std::size_t begin = 0;
    while (begin < piece.size()) {
      std::size_t end = begin;
      while (piece.substr(end, kSpaceMark.size()) == kSpaceMark) end += kSpaceMark.size();
      end = std::min(piece.find(kSpaceMark, end), piece.size());
      encode_word(piece.substr(begin, end - begin), out);
      begin = end;
    }
  }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) {
    const auto known = cache_.find(word);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      unknown_before_ = false;
      return;
    }
    const std::size_t before = out.size();
    const bool plain = encode_chunk(word, out);
    // Adjacent unknown characters of two words share one token, so the tokens of such a word depend
    // on the word before it.
    if (plain) cache_.store(word, std::span(out).subspan(before));
  }

  // Returns false if there were unknown characters.
  bool encode_chunk(std::string_view text, std::vector<std::int32_t>& out) {
    symbols_.clear();
    for (std::size_t i = 0; i < text.size();) {
      const auto match = model_.user_defined_.longest(text, i);
      if (match.size > 0) {
        symbols_.push_back(kFrozen - match.value);
        i += match.size;
        continue;
      }
      const CodePoint c = code_point_at(text, i);
      const auto known = model_.characters_.find(c.value);
      symbols_.push_back(known != model_.characters_.end()
                             ? known->second
                             : kUnknown - static_cast<std::int32_t>(c.value));
      i += c.size;
    }
    merger_.merge(symbols_);
    bool plain = true;
    for (const std::int32_t symbol : symbols_) plain &= put(symbol, out);
    return plain;
  }

  bool put(std::int32_t symbol, std::vector<std::int32_t>& out) {
    const std::int32_t limit = model_.vocabulary().id_limit();
    if (symbol >= 0 && symbol < limit) {
      out.push_back(symbol);
    } else if (symbol < 0 && symbol > kUnknown) {
      out.push_back(kFrozen - symbol);
    } else {
      put_unknown(symbol >= limit
                      ? model_.extra_characters_[static_cast<std::size_t>(symbol - limit)]
                      : static_cast<char32_t>(kUnknown - symbol),
                  out);
      return false;
    }
    unknown_before_ = false;
    return true;
  }

  void put_unknown(char32_t c, std::vector<std::int32_t>& out) {
    if (model_.options_.byte_fallback) {
      std::string text;
      append_utf8(c, text);
      if (model_.bytes_.append(text, out)) return;
    }
    if (!unknown_before_ && model_.options_.unknown_id >= 0) {
      out.push_back(model_.options_.unknown_id);
    }
    unknown_before_ = true;
  }

  const ScoredBpeModel& model_;
  WordCache cache_;
  SymbolMerger merger_;
  std::vector<std::int32_t> symbols_;
  bool unknown_before_ = false;
};

ScoredBpeModel::ScoredBpeModel(Vocabulary vocabulary, Options options)
    : TokenModel(std::move(vocabulary)), options_(std::move(options)), bytes_(this->vocabulary()) {
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (const std::int32_t id : options_.user_defined) {
    entries.emplace_back(this->vocabulary().token(id), id);
  }
  user_defined_ = ByteTrie(std::move(entries));
  learn_merges();
}

std::int32_t ScoredBpeModel::symbol_of(std::string_view text) const {
  if (utf8_size(text.front()) == text.size()) {
    return characters_.at(code_point_at(text, 0).value);
  }
  const int id = vocabulary().find(text);
  return id >= 0 && options_.mergeable[static_cast<std::size_t>(id)] ? id : -1;
}

void ScoredBpeModel::learn_merges() {
  const int limit = vocabulary().id_limit();
  std::vector<std::int32_t> ordered;
  for (std::int32_t id = 0; id < limit; ++id) {
    if (options_.mergeable[static_cast<std::size_t>(id)]) ordered.push_back(id);
  }
  for (const std::int32_t id : ordered) {
    const std::string_view text = vocabulary().token(id);
    if (utf8_size(text.front()) == text.size()) characters_[code_point_at(text, 0).value] = id;
    marks_begin_words_ &= only_leading_marks(text);
  }
  for (const std::int32_t id : ordered) {
    const std::string_view text = vocabulary().token(id);
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = code_point_at(text, i);
      const auto extra = static_cast<std::int32_t>(extra_characters_.size());
      if (characters_.try_emplace(c.value, limit + extra).second)
        extra_characters_.push_back(c.value);
      i += c.size;
    }
  }
  const auto score = [&](std::int32_t id) { return options_.scores[static_cast<std::size_t>(id)]; };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
  std::uint32_t rank = 0;  // equal scores share a rank, so that the leftmost pair goes first
  for (std::size_t n = 0; n < ordered.size(); ++n) {
    const std::int32_t id = ordered[n];
    if (n > 0 && score(id) != score(ordered[n - 1])) ++rank;
    const std::string_view text = vocabulary().token(id);
    for (std::size_t i = utf8_size(text[0]); i < text.size(); i += utf8_size(text[i])) {
      const std::int32_t left = symbol_of(text.substr(0, i));
      const std::int32_t right = left < 0 ? -1 : symbol_of(text.substr(i));
      if (right >= 0) merges_.add(left, right, {rank, id});
    }
  }
}

std::unique_ptr<TokenModel::Session> ScoredBpeModel::start(std::size_t text_bytes) const {
  return std::make_unique<ScoredBpeSession>(*this, text_bytes);
}

}  // namespace bl
