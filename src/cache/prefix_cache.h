#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "cache/host_tier.h"
#include "cache/move_rule.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/prefix_index.h"

namespace bl {

// How much of a sequence is in the index: its first `tokens` tokens, of which `node` is the last
// page.
struct PrefixCursor {
  PrefixIndex::Node node = PrefixIndex::kNone;
  std::int64_t tokens = 0;  // a multiple of kPageSlots
  bool waits = false;       // the next page is on the host, and this step has moved enough
};

// The result of shared_pages() for a text, from which the next call continues.
struct SharedBeginning {
  PrefixIndex::Node node = PrefixIndex::kNone;  // the last shared page
  std::uint64_t number = 0;  // of the node, to notice that another has taken its place
  std::int32_t pages = 0;
  std::uint64_t changes = UINT64_MAX;  // of the cache at that time
};

struct CacheStats {
  std::int64_t lookups = 0;         // sequences that looked up their text
  std::int64_t tokens_asked = 0;    // tokens in these texts
  std::int64_t tokens_found = 0;    // tokens that did not have to be computed
  std::int64_t pages_shared = 0;    // found whole
  std::int64_t pages_copied = 0;    // found in part
  std::int64_t pages_replaced = 0;  // computed twice; one copy was released
  std::int64_t pages_evicted = 0;
  // Host tier: pages evicted to it, brought back from it, and dropped by it.
  std::int64_t pages_stored = 0;
  std::int64_t pages_restored = 0;
  std::int64_t pages_dropped = 0;
  std::int64_t tokens_restored = 0;
  double hit_rate() const {
    return tokens_asked > 0 ? static_cast<double>(tokens_found) / static_cast<double>(tokens_asked)
                            : 0.0;
  }
};

// Shares pages by content, between running sequences and with finished ones.
//
// A sequence adopts the part of its text that the index knows, computes the rest into pages of its
// own, publishes each page once it is full, and at its end also the last, partly filled one.
// Published pages stay until their memory is needed. The least recently used is evicted first, and
// a text from its end. Nobody writes to a full page; a page of which a text shares only a part is
// copied first.
//
// With a host tier, evicted pages go there if that is worth it, and return when a text asks for
// them. A page is in one tier at a time. The host tier evicts in the same order.
//
// Calls that move or copy pages throw what PageMemory and CopyPage throw, and all calls but
// truncate() and release() may throw bad_alloc. Pool, index and tier stay consistent; a table that
// was being filled may have too many pages and must be released.
//
// Not thread-safe.
class PrefixCache {
 public:
  // Copies page `from` to page `to`.
  using CopyPage = std::function<void(std::int32_t to, std::int32_t from)>;
  // A shared beginning of less than `least_copied` tokens is computed instead of copied. `tier` may
  // be null; it must outlive the cache.
  PrefixCache(PagePool& pool, CopyPage copy, std::int64_t least_copied, HostTier* tier = nullptr)
      : pool_(pool), copy_(std::move(copy)), least_copied_(least_copied), tier_(tier) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();  // releases the index's references

  // Sets the current rates, and how many pages adopt() may bring back from the host until the next
  // call, so that a long text does not hold up the step.
  void begin_step(const TierRates& rates, std::int64_t restored_pages);

  // Pages that can be made available: free and idle ones.
  std::int32_t available() const { return pool_.free_pages() + pool_.idle_pages(); }

  // Number of pages that adopt() would share with running sequences, which therefore cost nothing.
  // `known` must come from an earlier call with the same text or a beginning of it; then asking
  // again is cheap.
  std::int32_t shared_pages(std::string_view salt, std::span<const std::int32_t> ids,
                            SharedBeginning& known) const;
  std::int32_t shared_pages(std::string_view salt, std::span<const std::int32_t> ids) const {
    SharedBeginning none;
    return shared_pages(salt, ids, none);
  }
  // Number of tokens at the start of the text that are known in full pages, in either tier.
  std::int64_t known_tokens(std::string_view salt, std::span<const std::int32_t> ids) const;

  // Shares pages into a table that holds exactly the pages of `cursor`. Returns how many tokens of
  // `ids` the table then holds. If cursor.waits is set, call again in the next step for more.
  std::int64_t adopt(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
                     PrefixCursor& cursor);
  // Statistics: count() records a sequence's first adoption, count_found() what it finds later.
  void count(std::int64_t asked, std::int64_t found);
  void count_found(std::int64_t tokens) { stats_.tokens_found += tokens; }

  // Makes room for positions [0, tokens), evicting as needed. Returns false and leaves the table
  // unchanged if there are too few pages.
  [[nodiscard]] bool reserve(PageTable& table, std::int64_t tokens);

  // Puts the full pages of `ids`, all of them computed, into the index.
  void publish(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
               PrefixCursor& cursor);
  // Also publishes the last page as far as it is filled. Its owner may go on filling it.
  void publish_all(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
                   PrefixCursor& cursor);

  // Cuts a sequence to its first `tokens` tokens: releases the pages after them, and also a page
  // that others may read but the sequence would have to write to. Returns how many tokens the table
  // still holds.
  std::int64_t truncate(PageTable& table, PrefixCursor& cursor, std::int64_t tokens);
  // Evicts all idle pages, to the host tier if there is one.
  void evict_all();

  // Releases the sequence's pages; what it has published stays for others.
  void release(PageTable& table, PrefixCursor& cursor);

  const CacheStats& stats() const { return stats_; }
  const PrefixIndex& index() const { return index_; }

 private:
  // kOrdinary: an evicted page may push others out of host memory. kExchange: it takes the slot
  // that is kept free for the page that comes back.
  enum class Eviction { kOrdinary, kExchange };
  bool evict_one(Eviction eviction);
  bool make_room(std::int32_t pages, Eviction eviction);
  bool reserve(PageTable& table, std::int64_t tokens, Eviction eviction);
  bool store(PrefixIndex::Node node, Eviction eviction);
  bool restore(PrefixIndex::Node node);
  bool drop_oldest_of_host();
  void drop_from_host(PrefixIndex::Node node);
  void drop_below(PrefixIndex::Node node);
  bool is_in_use(PrefixIndex::Node node) const;
  PrefixIndex::Node last_known(PrefixIndex::Node node, std::span<const std::int32_t> ids) const;
  bool copy_beginning(PageTable& table, PrefixIndex::Longest longest);
  void forget(PrefixIndex::Node node);
  void forget_superseded(PrefixIndex::Node by);

  PagePool& pool_;
  CopyPage copy_;
  std::int64_t least_copied_;
  HostTier* tier_;
  TierRates rates_;
  std::int64_t restorable_ = INT64_MAX;  // pages that this step may still bring back
  PrefixIndex index_;
  CacheStats stats_;
};

}  // namespace bl
