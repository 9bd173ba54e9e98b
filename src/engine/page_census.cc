#include "engine/page_census.h"

#include <algorithm>
#include <utility>

#include "ops/kv_layout.h"

namespace bl {

PageCensus::PageCensus(const PagePool& pool, const PrefixIndex& index) {
  for (std::int32_t page = 0; page < pool.pages(); ++page) {
    PageUse& use = view_.pages.emplace_back();
    use.references = pool.references(page);
    if (use.references == 0) continue;
    use.state = pool.is_idle(page) ? PageUse::State::kCached : PageUse::State::kInUse;
    const PrefixIndex::Node node = index.node_of(page);
    if (node == PrefixIndex::kNone) continue;
    use.tokens = static_cast<std::int32_t>(index.ids(node).size());
  }
}

template <class Visit>
void PageCensus::visit(std::span<const std::int32_t> pages, std::int64_t tokens, Visit&& visit) {
  for (std::size_t i = 0; i < pages.size(); ++i, tokens -= kPageSlots) {
    PageUse& use = view_.pages[static_cast<std::size_t>(pages[i])];
    const auto filled = std::clamp<std::int64_t>(tokens, 0, kPageSlots);
    use.tokens = std::max(use.tokens, static_cast<std::int32_t>(filled));
    visit(use);
  }
}

void PageCensus::add_request(std::int64_t number, std::span<const std::int32_t> pages,
                             std::int64_t tokens) {
  visit(pages, tokens, [number](PageUse& use) { use.requests.push_back(number); });
}

void PageCensus::add_pin(std::span<const std::int32_t> pages, std::int64_t tokens) {
  visit(pages, tokens, [](PageUse& use) { use.pinned = true; });
}

void PageCensus::add_loan(std::span<const std::int32_t> pages, std::int64_t tokens) {
  visit(pages, tokens, [](PageUse&) {});
}

PageTableView PageCensus::take() {
  for (PageUse& use : view_.pages) {
    std::ranges::sort(use.requests);
    const auto twice = std::unique(use.requests.begin(), use.requests.end());
    use.requests.erase(twice, use.requests.end());
  }
  return std::move(view_);
}

}  // namespace bl
