#include "engine/token_tables.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "sample/token_sets.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// How many lists of breakers are remembered: users have a few, not one per request.
constexpr std::size_t kLists = 16;

}  // namespace

std::vector<std::int32_t> TokenTables::in_vocabulary(std::vector<std::int32_t> ids) const {
  ids.erase(std::lower_bound(ids.begin(), ids.end(), vocab_), ids.end());
  return ids;
}

void TokenTables::add_pieces(const char* name, std::vector<std::string>& pieces,
                             std::vector<std::int32_t>& ids) {
  if (pieces.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!texts_) texts_.emplace(tokenizer_, vocab_);
  for (const std::string& piece : pieces) {
    const std::vector<std::int32_t> found = texts_->find(piece);
    if (found.empty()) {
      fail(
          ErrorCode::kInvalidArgument,
          "{} has {}, which is no token of the model: a text there must be exactly one token, with "
          "the space before it if it has one",
          name, json_shown(Json(piece)));
    }
    ids.insert(ids.end(), found.begin(), found.end());
  }
  pieces.clear();
}

void TokenTables::complete(SamplingParams& params) {
  add_pieces("banned_tokens", params.banned_pieces, params.banned_tokens);
  add_pieces("allowed_tokens", params.allowed_pieces, params.allowed_tokens);
  const bool wants_breakers = params.dry_multiplier > 0 && params.dry_breaker_tokens.empty();
  const bool wants_spared = params.xtc_probability > 0 && params.xtc_ignore_tokens.empty();
  if (!wants_breakers && !wants_spared) return;
  const std::lock_guard lock(mutex_);
  if (wants_breakers) params.dry_breaker_tokens = *breakers(params.dry_sequence_breakers);
  if (!wants_spared) return;
  if (!spared_) {
    spared_ = std::make_shared<std::vector<std::int32_t>>(
        in_vocabulary(xtc_protected_tokens(tokenizer_)));
  }
  params.xtc_ignore_tokens = *spared_;
}

TokenTables::Ids TokenTables::breakers(const std::vector<std::string>& texts) {
  const auto known = std::find_if(breakers_.begin(), breakers_.end(),
                                  [&](const auto& entry) { return entry.first == texts; });
  if (known != breakers_.end()) {
    std::rotate(known, known + 1, breakers_.end());
    return breakers_.back().second;
  }
  if (breakers_.size() == kLists) breakers_.erase(breakers_.begin());
  Ids ids = std::make_shared<std::vector<std::int32_t>>(
      in_vocabulary(tokens_containing(tokenizer_, texts, true)));
  breakers_.emplace_back(texts, ids);
  return ids;
}

const PieceIndex& TokenTables::pieces() {
  const std::lock_guard lock(mutex_);
  if (!pieces_) pieces_.emplace(tokenizer_, vocab_);
  return *pieces_;
}

}  // namespace bl
