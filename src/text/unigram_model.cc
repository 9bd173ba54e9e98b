#include "text/unigram_model.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr std::size_t kUnreached = std::numeric_limits<std::size_t>::max();

}  // namespace

class UnigramModel::UnigramSession final : public TokenModel::Session {
 public:
  UnigramSession(const UnigramModel& model, std::size_t text_bytes)
      : model_(model), cache_(text_bytes) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) override {
    const auto known = cache_.find(piece);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    find_best(piece);
    ids_.clear();
    read_back(piece);
    cache_.store(piece, ids_);
    out.insert(out.end(), ids_.begin(), ids_.end());
  }

 private:
  // The best way to reach a byte of the piece: its score, and the token that ends there.
  struct Node {
    double score = 0;
    std::size_t begin = kUnreached;
    std::int32_t id = -1;
  };
  struct Span {
    std::size_t begin, end;
    std::int32_t id;
  };

  void find_best(std::string_view piece) {
    nodes_.assign(piece.size() + 1, Node{});
    for (std::size_t begin = 0; begin < piece.size();) {
      const double score = nodes_[begin].score;
      const unsigned size = utf8_size(piece[begin]);
      bool has_character = false;
      int node = ByteTrie::kRoot;
      for (std::size_t i = begin; i < piece.size() && !model_.trie_.empty(); ++i) {
        node = model_.trie_.step(node, piece[i]);
        if (node == ByteTrie::kNone) break;
        const std::int32_t id = model_.trie_.value(node);
        if (id < 0) continue;
        reach(i + 1, {score + model_.options_.scores[static_cast<std::size_t>(id)], begin, id});
        has_character |= i + 1 - begin == size;
      }
      if (!has_character) {
        reach(begin + size, {score + model_.options_.unknown_score, begin, unknown_id()});
      }
      begin += size;
    }
  }

  void reach(std::size_t end, Node candidate) {
    // The score is rounded before it is compared: sums that differ only beyond float precision are
    // ties, and the first one wins.
    if (model_.options_.single_precision) candidate.score = static_cast<float>(candidate.score);
    Node& node = nodes_[end];
    if (node.begin == kUnreached || candidate.score > node.score) node = candidate;
  }

  std::int32_t unknown_id() const {
    if (!model_.options_.unknown_id) {
      fail(ErrorCode::kInvalidArgument,
           "the text has characters that the vocabulary lacks, and it has no token for unknown "
           "text");
    }
    return *model_.options_.unknown_id;
  }

  void read_back(std::string_view piece) {
    spans_.clear();
    for (std::size_t end = piece.size(); end > 0;) {
      const Node& node = nodes_[end];
      const bool unknown = node.id == model_.options_.unknown_id;
      if (unknown && !spans_.empty() && spans_.back().id == node.id) {
        spans_.back().begin = node.begin;  // adjacent unknown text is one token, however long
      } else {
        spans_.push_back({node.begin, end, node.id});
      }
      end = node.begin;
    }
    std::reverse(spans_.begin(), spans_.end());
    for (const Span& span : spans_) {
      if (span.id != model_.options_.unknown_id) {
        ids_.push_back(span.id);
        continue;
      }
      const std::string_view text = piece.substr(span.begin, span.end - span.begin);
      const int id = model_.options_.unknown_by_text ? model_.vocabulary().find(text) : -1;
      if (id >= 0) {
        ids_.push_back(id);
      } else if (!model_.options_.byte_fallback || !model_.bytes_.append(text, ids_)) {
        ids_.push_back(span.id);
      }
    }
  }

  const UnigramModel& model_;
  WordCache cache_;
  std::vector<Node> nodes_;
  std::vector<Span> spans_;
  std::vector<std::int32_t> ids_;
};

UnigramModel::UnigramModel(Vocabulary vocabulary, Options options)
    : TokenModel(std::move(vocabulary)), options_(std::move(options)), bytes_(this->vocabulary()) {
  const Vocabulary& all = this->vocabulary();
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  entries.reserve(all.size());
  for (int id = 0; id < all.id_limit(); ++id) {
    const std::string_view token = all.token(id);
    const bool in_text = options_.in_text.empty() || options_.in_text[static_cast<std::size_t>(id)];
    if (token.data() != nullptr && in_text) entries.emplace_back(token, all.find(token));
  }
  trie_ = ByteTrie(std::move(entries));
}

std::unique_ptr<TokenModel::Session> UnigramModel::start(std::size_t text_bytes) const {
  return std::make_unique<UnigramSession>(*this, text_bytes);
}

}  // namespace bl
