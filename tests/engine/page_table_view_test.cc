// What the pages of the cache are used for, as a person sees it.
#include "engine/page_table_view.h"

#include <algorithm>
#include <vector>

#include "core_test.h"

namespace bl {
namespace {

using State = PageUse::State;

class PageTableViews : public test::CoreTest {
 protected:
  Asked& ask_as(std::int64_t number, Request request) {
    Asked& asked = ask(std::move(request));
    asked.open->number = number;
    return asked;
  }
  // Pages that all of this holds for.
  static std::int64_t count(const PageTableView& view, State state, std::int32_t tokens,
                            const std::vector<std::int64_t>& requests) {
    return std::ranges::count_if(view.pages, [&](const PageUse& page) {
      return page.state == state && page.tokens == tokens && page.requests == requests;
    });
  }
  // What the pool itself says.
  void expect_agreement(const PageTableView& view) {
    const EngineStats stats = core_->stats();
    ASSERT_EQ(std::ssize(view.pages), stats.pages);
    const auto in_state = [&](State state) {
      return std::ranges::count(view.pages, state, &PageUse::state);
    };
    EXPECT_EQ(in_state(State::kFree), stats.free_pages);
    EXPECT_EQ(in_state(State::kCached), stats.idle_pages);
    EXPECT_EQ(std::ranges::count(view.pages, true, &PageUse::pinned), stats.pinned_pages);
    for (std::int32_t page = 0; page < stats.pages; ++page) {
      const PageUse& use = view.pages[static_cast<std::size_t>(page)];
      EXPECT_EQ(use.references, model_->pool().references(page));
      EXPECT_EQ(use.references == 0, use.state == State::kFree);
      EXPECT_EQ(use.tokens > 0, use.state != State::kFree);
      EXPECT_LE(use.tokens, kPageSlots);
    }
  }
};

// Two requests begin with the same 512 tokens, and one of them has two answers.
TEST_F(PageTableViews, SharedPagesNameAllWhoUseThem) {
  start({});
  EXPECT_EQ(count(core_->page_table(), State::kFree, 0, {}), 64);
  Asked& first = ask_as(3, request(text(600, 1), 40));
  for (int i = 0; i < 3; ++i) step();
  std::vector<std::int32_t> prompt = text(512, 1);
  prompt.insert(prompt.end(), 20, 7);
  Request two = request(prompt, 30);
  two.sampling.n = 2;
  Asked& second = ask_as(8, two);
  for (int i = 0; i < 5; ++i) step();
  const PageTableView view = core_->page_table();
  expect_agreement(view);
  EXPECT_EQ(count(view, State::kInUse, 256, {3, 8}), 2);
  // The newest token of a text is not computed yet.
  read(first);
  read(second);
  const auto behind = [](std::size_t prompt, std::size_t generated) {
    return static_cast<std::int32_t>(prompt + generated - 1 - 512);
  };
  EXPECT_EQ(count(view, State::kInUse, behind(600, first.ids[0].size()), {3}), 1);
  const auto own = std::ranges::count_if(view.pages, [](const PageUse& page) {
    return page.requests == std::vector<std::int64_t>{8};
  });
  EXPECT_EQ(own, 2);
  EXPECT_EQ(count(view, State::kInUse, behind(532, second.ids[0].size()), {8}), 1);
  run_all(100);
  const PageTableView after = core_->page_table();
  expect_agreement(after);
  EXPECT_EQ(count(after, State::kCached, 256, {}), 2);
  EXPECT_TRUE(std::ranges::all_of(
      after.pages, [](const PageUse& page) { return page.requests.empty() && !page.pinned; }));
}

TEST_F(PageTableViews, PinnedPagesAndThoseOfGuidanceAndOfFiles) {
  start({.gives_logits = true});
  Request pinned = request(text(600, 1), 2);
  pinned.pin = "system";
  ask(pinned);
  run_all(20);
  PageTableView view = core_->page_table();
  expect_agreement(view);
  EXPECT_EQ(std::ranges::count(view.pages, true, &PageUse::pinned), 2);
  EXPECT_EQ(count(view, State::kInUse, 256, {}), 2);
  // The pin and whoever takes it to a file.
  const auto lent = core_->lend();
  core_->cache().adopt("", text(512, 1), *lent->table, lent->cursor);
  view = core_->page_table();
  expect_agreement(view);
  for (const PageUse& page : view.pages)
    EXPECT_EQ(page.references, page.pinned ? 3 : page.state == State::kCached ? 1 : 0);
  // An answer's two texts are one request's.
  Request guided = request(text(300, 2), 30);
  guided.sampling.cfg_scale = 2;
  guided.negative_prompt = text(300, 3);
  ask_as(5, guided);
  for (int i = 0; i < 4; ++i) step();
  view = core_->page_table();
  expect_agreement(view);
  EXPECT_EQ(count(view, State::kInUse, 256, {5}), 2);
}

TEST_F(PageTableViews, AsText) {
  PageTableView view;
  view.pages.resize(70);
  view.pages[1] = {State::kCached, 1, false, 20, {}};
  view.pages[2] = {State::kCached, 1, false, 256, {}};
  view.pages[3] = {State::kInUse, 2, true, 256, {4}};
  view.pages[4] = {State::kInUse, 1, false, 10, {4}};
  view.pages[5] = {State::kInUse, 3, false, 256, {4, 12}};
  view.pages[6] = {State::kInUse, 1, false, 0, {}};
  view.pages[63] = {State::kInUse, 1, false, 1, {12}};
  view.pages[64] = {State::kInUse, 11, false, 256, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12}};
  view.pages[69] = {State::kInUse, 1, false, 0, {12}};
  const std::string text = to_text(view);
  const std::string first(56, '.');
  EXPECT_EQ(text.substr(0, text.find("request 1:")),
            "70 pages of 256 tokens: 61 free, 2 cached, 7 in use (1 pinned); 1055 tokens\n"
            "      0  .cCP12?" +
                first +
                "1\n"
                "     64  +....1\n");
  EXPECT_NE(text.find("\nrequest 4: pages 3-5, 64\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nrequest 10: page 64\nrequest 12: pages 5, 63-64, 69\n"), std::string::npos)
      << text;
}

// Beside a running engine: handles have the numbers that the view speaks of.
TEST(PageTableViewsOfAnEngine, RequestsAreKnownByTheirNumbers) {
  Engine engine(std::make_unique<test::FakeModel>(test::FakeModel::Options{}), nullptr, {});
  Request request;
  request.prompt.assign(300, 5);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 3000;
  request.ignore_end_tokens = true;
  request.unread_tokens = 4;  // it stays open until somebody reads
  RequestHandle first = engine.submit(request);
  ASSERT_TRUE(first.next());
  RequestHandle second = engine.submit(request);  // finds what the first one has computed
  EXPECT_LT(first.number(), second.number());
  ASSERT_TRUE(second.next());
  const std::vector<std::int64_t> both{first.number(), second.number()};
  const PageTableView view = engine.page_table();
  EXPECT_EQ(std::ranges::count(view.pages, both, &PageUse::requests), 1);
  std::swap(first, second);
  EXPECT_EQ(first.number(), both[1]);
}

}  // namespace
}  // namespace bl
