#include "engine/token_counts.h"

#include <algorithm>

#include "base/check.h"

namespace bl {
namespace {

// With more changes, sorting everything is cheaper than finding a place for each.
constexpr std::size_t kManyChanges = 256;

}  // namespace

std::span<const TokenCounts::Count> TokenCounts::of(std::span<const std::int32_t> text,
                                                    std::int64_t range) {
  const std::size_t begin =
      range < 0 ? 0 : text.size() - std::min(text.size(), static_cast<std::size_t>(range));
  // The text's ids [same, same_end) are counted and stay.
  const std::size_t end = begin_ + ids_.size();
  const std::size_t same = std::min(std::max(begin, begin_), end);
  std::size_t same_end = same;
  if (is_whole_ && same < text.size()) {
    const auto known = ids_.begin() + static_cast<std::ptrdiff_t>(same - begin_);
    const auto now = text.subspan(same);
    const auto most = static_cast<std::ptrdiff_t>(std::min(now.size(), end - same));
    // Usually nothing differs, which equal() finds out faster than mismatch().
    const bool is_equal = std::equal(known, known + most, now.begin());
    same_end += static_cast<std::size_t>(
        is_equal ? most : std::mismatch(known, known + most, now.begin()).first - known);
  }
  const std::size_t changes =
      (same - begin_) + (end - same_end) + (same - begin) + (text.size() - same_end);
  const bool anew = !is_whole_ || same < begin || same_end == same || changes > kManyChanges;
  is_whole_ = false;  // until everything below has succeeded
  if (anew) {
    ids_.assign(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end());
    begin_ = begin;
    count_anew();
  } else {
    for (std::size_t i = begin_; i < same; ++i) add(ids_[i - begin_], -1);
    for (std::size_t i = same_end; i < end; ++i) add(ids_[i - begin_], -1);
    for (std::size_t i = begin; i < same; ++i) add(text[i], 1);
    for (std::size_t i = same_end; i < text.size(); ++i) add(text[i], 1);
    ids_.resize(same_end - begin_);
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(same - begin_));
    ids_.insert(ids_.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin),
                text.begin() + static_cast<std::ptrdiff_t>(same));
    ids_.insert(ids_.end(), text.begin() + static_cast<std::ptrdiff_t>(same_end), text.end());
    begin_ = begin;
  }
  is_whole_ = true;
  return counts_;
}

void TokenCounts::count_anew() {
  std::vector<std::int32_t> sorted = ids_;
  std::sort(sorted.begin(), sorted.end());
  counts_.clear();
  for (const std::int32_t id : sorted) {
    if (counts_.empty() || counts_.back().id != id) counts_.push_back({id, 0});
    ++counts_.back().count;
  }
}

void TokenCounts::add(std::int32_t id, std::int32_t change) {
  const auto at =
      std::lower_bound(counts_.begin(), counts_.end(), id,
                       [](const Count& c, std::int32_t wanted) { return c.id < wanted; });
  if (at == counts_.end() || at->id != id) {
    BL_DCHECK(change > 0);
    counts_.insert(at, {id, change});
    return;
  }
  at->count += change;
  if (at->count == 0) counts_.erase(at);
}

}  // namespace bl
