#include "engine/page_table_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/kv_layout.h"

namespace bl {
namespace {

constexpr std::size_t kInALine = 64;

char symbol_of(const PageUse& page) {
  if (page.state == PageUse::State::kFree) return '.';
  if (page.pinned) return 'P';
  if (page.state == PageUse::State::kCached) return page.tokens == kPageSlots ? 'C' : 'c';
  if (page.requests.empty()) return '?';
  return page.requests.size() > 9 ? '+' : static_cast<char>('0' + page.requests.size());
}

// "0, 3-4, 9" for sorted numbers.
std::string ranges(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < numbers.size(); first = last + 1) {
    last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[first]);
    if (last > first) text += fmt::format("-{}", numbers[last]);
  }
  return text;
}

std::string sums(const PageTableView& view) {
  const auto count = [&](PageUse::State state) {
    return std::ranges::count(view.pages, state, &PageUse::state);
  };
  std::int64_t tokens = 0;
  for (const PageUse& page : view.pages) tokens += page.tokens;
  return fmt::format(
      "{} pages of {} tokens: {} free, {} cached, {} in use ({} pinned); {} tokens\n",
      view.pages.size(), kPageSlots, count(PageUse::State::kFree), count(PageUse::State::kCached),
      count(PageUse::State::kInUse), std::ranges::count(view.pages, true, &PageUse::pinned),
      tokens);
}

}  // namespace

std::string to_text(const PageTableView& view) {
  std::string text = sums(view);
  std::map<std::int64_t, std::vector<std::size_t>> of_request;
  for (std::size_t page = 0; page < view.pages.size(); ++page) {
    if (page % kInALine == 0) text += fmt::format("{}{:>7}  ", page == 0 ? "" : "\n", page);
    text += symbol_of(view.pages[page]);
    for (const std::int64_t request : view.pages[page].requests) {
      of_request[request].push_back(page);
    }
  }
  text += '\n';
  for (const auto& [request, pages] : of_request) {
    text += fmt::format("request {}: {} {}\n", request, pages.size() == 1 ? "page" : "pages",
                        ranges(pages));
  }
  return text;
}

}  // namespace bl
