#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bl {

// What one page of the cache is used for.
struct PageUse {
  enum class State {
    kFree,
    kCached,  // kept only for its contents, and evicted when its memory is needed
    kInUse,   // held by a sequence, a pin, or a prefix that is saved or loaded
  };
  State state = State::kFree;
  // How many hold it: sequences (a guided answer has two), pins, and the prefix index that finds it
  // by its contents. 0: free.
  std::int32_t references = 0;
  bool pinned = false;
  std::int32_t tokens = 0;  // filled slots, including a step under way; 0 … kPageSlots
  std::vector<std::int64_t> requests{};  // open ones that use it (RequestHandle::number()), sorted
};

// Every page of an engine's pool, by number, as it was between two steps: for people who want to
// see what fills the cache. Making it takes time in proportion to pages and open requests.
struct PageTableView {
  std::vector<PageUse> pages;
};

// A line of sums; then a character per page (`.` free, `c` cached, `C` cached and full, `P` pinned,
// `1` … `9` the number of open requests that use it, `+` more of them, `?` in use by no request),
// 64 per line after the number of the first page; and a line per open request with its pages:
//
//   8 pages of 256 tokens: 3 free, 2 cached, 3 in use (1 pinned); 1100 tokens
//        0  Pcc21...
//   request 7: pages 0, 3-4
//   request 9: page 3
std::string to_text(const PageTableView& view);

}  // namespace bl
