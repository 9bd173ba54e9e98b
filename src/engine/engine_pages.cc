// EngineCore: which page is whose.
#include <algorithm>
#include <span>

#include "engine/engine_core.h"
#include "engine/page_table_view.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

// The pages of a text of which `tokens` tokens are computed.
template <class Look>
void point_to_tables(std::span<const std::int32_t> pages, std::int64_t tokens, PageTableView& view,
                     Look&& look) {
  for (std::size_t i = 0; i < pages.size(); ++i, tokens -= kPageSlots) {
    PageUse& use = view.pages[static_cast<std::size_t>(pages[i])];
    const auto filled = std::clamp<std::int64_t>(tokens, 0, kPageSlots);
    use.tokens = std::max(use.tokens, static_cast<std::int32_t>(filled));
    look(use);
  }
}

}  // namespace

PageTableView EngineCore::page_table() const {
  const PagePool& pool = model_.pool();
  const PrefixIndex& index = cache_.index();
  PageTableView view;
  for (std::int32_t page = 0; page < pool.pages(); ++page) {
    PageUse& use = view.pages.emplace_back();
    use.references = pool.references(page);
    if (use.references == 0) continue;
    use.state = pool.is_idle(page) ? PageUse::State::kCached : PageUse::State::kInUse;
    const PrefixIndex::Node node = index.node_of(page);
    if (node == PrefixIndex::kNone) continue;
    use.tokens = static_cast<std::int32_t>(index.ids(node).size());
  }
  for (const ChoicePtr& choice : choices_) {
    const Sequence& sequence = choice->sequence;
    point_to_tables(sequence.pages.pages(), sequence.cached, view,
                    [&](PageUse& use) { use.requests.push_back(choice->open->number); });
  }
  for (const auto& [name, pin] : pins_.all()) {
    point_to_tables(pin.pages.pages(), std::ssize(pin.ids), view,
                    [](PageUse& use) { use.pinned = true; });
  }
  for (const std::shared_ptr<LentPages>& lent : lent_) {
    point_to_tables(lent->table->pages(), lent->cursor.tokens, view, [](PageUse&) {});
  }
  for (PageUse& use : view.pages) {
    std::ranges::sort(use.requests);
    const auto twice = std::unique(use.requests.begin(), use.requests.end());
    use.requests.erase(twice, use.requests.end());
  }
  return view;
}

}  // namespace bl
