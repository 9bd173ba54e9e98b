#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bl {

// What one page of the cache is used for.
struct PageUse {
  enum class State {
    kFree,
    kCached,  // kept for its content alone: given up when its memory is needed
    kInUse,   // held by a sequence, a pin, or whoever saves or loads a prefix
  };
  State state = State::kFree;
  // Whoever holds it: sequences (with guidance an answer has two), pins, and the index that finds
  // it by its content. 0: free.
  std::int32_t references = 0;
  bool pinned = false;
  std::int32_t tokens = 0;  // slots that are filled, the step under way included; 0 … kPageSlots
  std::vector<std::int64_t>
      requests{};  // open ones that use it, by RequestHandle::number(), rising
};

// Every page of an engine's pool, by number, as it was between two steps. For people who want to
// see where the cache has gone: making it takes time with the number of pages and of open requests.
struct PageTableView {
  std::vector<PageUse> pages;
};

// A line of sums; a character a page (`.` free, `c` cached and `C` cached and full, `P` pinned, `1`
// … `9` used by so many open requests, `+` by more, `?` held by none of them), 64 a line behind the
// number of the first; and a line for each open request with the numbers of its pages:
//
//   8 pages of 256 tokens: 3 free, 2 cached, 3 in use (1 pinned); 1100 tokens
//        0  Pcc21...
//   request 7: pages 0, 3-4
//   request 9: page 3
std::string to_text(const PageTableView& view);

}  // namespace bl
