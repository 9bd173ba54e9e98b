#include "engine/ngram_draft.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// How many positions are compared, the newest first, and over how many tokens.
constexpr int kMostPlaces = 16;
constexpr std::int64_t kMostCompared = 32;
// From these lengths on matches have a higher confidence.
constexpr std::int64_t kGood = 4;
constexpr std::int64_t kSure = 10;

std::size_t confidence_of(std::int64_t length) {
  return length >= kSure ? 2 : (length >= kGood ? 1 : 0);
}

struct NgramMemory : DraftMemory {
  explicit NgramMemory(std::int64_t least) : index(least) {}
  NgramIndex index;
};

std::uint32_t hash_of(std::span<const std::int32_t> ids) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const std::int32_t id : ids) {
    hash = (hash ^ static_cast<std::uint32_t>(id)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return static_cast<std::uint32_t>(hash);
}

// How many tokens of `known` before `place` equal the last ones of the text.
std::int64_t match_length(std::span<const std::int32_t> known, std::int64_t place,
                          std::span<const std::int32_t> text) {
  std::int64_t length = 0;
  const std::int64_t most =
      std::min({kMostCompared, place, static_cast<std::int64_t>(text.size())});
  while (length < most && known[static_cast<std::size_t>(place - 1 - length)] ==
                              text[text.size() - 1 - static_cast<std::size_t>(length)]) {
    ++length;
  }
  return length;
}

}  // namespace

// The hash of a position is that of the `least` tokens before it. The position behind the end of
// the text is in no chain.
void NgramIndex::extend(std::span<const std::int32_t> text) {
  while (older_.size() < text.size()) {
    const std::size_t place = older_.size();
    if (newest_.size() < 2 * (place + 1)) grow();
    const auto least = static_cast<std::size_t>(least_);
    hashes_.push_back(place < least ? 0 : hash_of(text.subspan(place - least, least)));
    older_.push_back(-1);
    if (place >= least) {
      std::int32_t& newest = newest_[hashes_[place] & (newest_.size() - 1)];
      older_[place] = newest;
      newest = static_cast<std::int32_t>(place);
    }
  }
}

// Removes positions in the opposite order of their insertion, so that each is the newest of its
// chain.
void NgramIndex::cut(std::int64_t tokens) {
  while (static_cast<std::int64_t>(older_.size()) > tokens) {
    const std::size_t place = older_.size() - 1;
    if (place >= static_cast<std::size_t>(least_)) {
      newest_[hashes_[place] & (newest_.size() - 1)] = older_[place];
    }
    older_.pop_back();
    hashes_.pop_back();
  }
}

void NgramIndex::grow() {
  newest_.assign(std::max<std::size_t>(64, newest_.size() * 2), -1);
  for (std::size_t place = static_cast<std::size_t>(least_); place < older_.size(); ++place) {
    std::int32_t& newest = newest_[hashes_[place] & (newest_.size() - 1)];
    older_[place] = newest;
    newest = static_cast<std::int32_t>(place);
  }
}

void NgramIndex::search(std::span<const std::int32_t> known, std::span<const std::int32_t> text,
                        Match& best) const {
  const std::uint32_t hash = hash_of(text.last(static_cast<std::size_t>(least_)));
  std::int32_t place = newest_[hash & (newest_.size() - 1)];
  for (int i = 0; i < kMostPlaces && place >= 0 && best.length < kMostCompared; ++i) {
    const std::int64_t length = match_length(known, place, text);
    if (length >= least_ && length > best.length) best = {place, length};
    place = older_[static_cast<std::size_t>(place)];
  }
}

NgramIndex::Match NgramIndex::look_up(std::span<const std::int32_t> known,
                                      std::span<const std::int32_t> text) const {
  Match best;
  if (!older_.empty() && static_cast<std::int64_t>(text.size()) >= least_) {
    search(known, text, best);
  }
  return best;
}

NgramIndex::Match NgramIndex::find(std::span<const std::int32_t> text, std::int64_t same) {
  const auto size = static_cast<std::int64_t>(text.size());
  same = std::min({same, size, static_cast<std::int64_t>(older_.size())});
  const std::int64_t grown = size - same;
  cut(same);
  extend(text);
  Match best;
  if (size > least_) {
    // The continuation of the last match comes first, so that it is kept while it is right.
    if (expected_ >= 0 && expected_ + grown < size) {
      const std::int64_t length = match_length(text, expected_ + grown, text);
      if (length >= least_) best = {expected_ + grown, length};
    }
    search(text, text, best);
  }
  expected_ = best.place;
  return best;
}

void NgramDraft::check_target(const Tokenizer* tokenizer, std::int64_t) {
  if (known_text_.empty()) return;
  if (tokenizer == nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "a text to guess from needs the model's tokenizer, which it has not");
  }
  known_ = tokenizer->encode(known_text_, {.add_special = false, .parse_special = false});
  known_index_ = NgramIndex(least_);
  known_index_.find(known_, 0);
}

void NgramDraft::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    if (*job.memory == nullptr) *job.memory = std::make_unique<NgramMemory>(least_);
    NgramIndex& index = static_cast<NgramMemory&>(**job.memory).index;
    const NgramIndex::Match match = index.find(job.text, job.same);
    job.ids.clear();
    const NgramIndex::Match known = known_index_.look_up(known_, job.text);
    if (known.length > match.length) {
      job.confidence = confidence_of(known.length);
      const auto from = known_.begin() + known.place;
      const auto count = std::min<std::int64_t>(job.most, known_.end() - from);
      job.ids.assign(from, from + count);
      continue;
    }
    if (match.place < 0) continue;
    job.confidence = confidence_of(match.length);
    const auto place = static_cast<std::size_t>(match.place);
    for (std::size_t i = 0; i < static_cast<std::size_t>(job.most); ++i) {
      // A match that overlaps the end of the text goes on with its own guesses.
      const std::size_t from = place + i;
      job.ids.push_back(from < job.text.size() ? job.text[from] : job.ids[from - job.text.size()]);
    }
  }
}

}  // namespace bl
