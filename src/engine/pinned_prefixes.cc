#include "engine/pinned_prefixes.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "ops/kv_layout.h"

namespace bl {

void PinnedPrefixes::check_name(const std::string& name) {
  if (name.size() <= kLongestName) return;
  fail(ErrorCode::kInvalidArgument,
       "the name of a pinned prompt has {} bytes, and at most {} are allowed", name.size(),
       kLongestName);
}

std::string PinnedPrefixes::pin(const std::string& name, std::string salt,
                                std::span<const std::int32_t> ids,
                                std::span<const std::int32_t> pages) {
  if (size() >= kMostNames && find(name) == nullptr) {
    return fmt::format(
        "the prompt cannot be pinned as '{}': {} prompts are pinned, and no more may be; unpin one",
        name, size());
  }
  const std::size_t full = ids.size() / kPageSlots;
  std::set<std::int32_t> all = pages_beside(name);
  all.insert(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(full));
  const std::int32_t most = most_pages(pool_.pages());
  if (static_cast<std::int32_t>(all.size()) > most) {
    return fmt::format(
        "the prompt cannot be pinned as '{}': with it {} of the cache's {} pages would be pinned, "
        "and at most {} may be",
        name, all.size(), pool_.pages(), most);
  }
  Pin next(pool_);
  next.salt = std::move(salt);
  next.ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(full * kPageSlots));
  next.pages.share(pages.first(full));
  pins_.insert_or_assign(name, std::move(next));
  pages_ = static_cast<std::int32_t>(all.size());
  return {};
}

const PinnedPrefixes::Pin* PinnedPrefixes::find(const std::string& name) const {
  const auto found = pins_.find(name);
  return found == pins_.end() ? nullptr : &found->second;
}

bool PinnedPrefixes::unpin(const std::string& name) {
  const auto left = static_cast<std::int32_t>(pages_beside(name).size());
  pages_ = left;
  return pins_.erase(name) > 0;
}

// The pages that pins of other names hold.
std::set<std::int32_t> PinnedPrefixes::pages_beside(const std::string& name) const {
  std::set<std::int32_t> all;
  for (const auto& [other, held] : pins_) {
    if (other != name) all.insert(held.pages.pages().begin(), held.pages.pages().end());
  }
  return all;
}

}  // namespace bl
