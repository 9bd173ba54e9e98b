#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/prefix_index.h"

namespace bl {

// What of a sequence stands in the index: its first `tokens` tokens, whose last page is `node`.
struct PrefixCursor {
  PrefixIndex::Node node = PrefixIndex::kNone;
  std::int64_t tokens = 0;  // a multiple of kPageSlots
};

struct CacheStats {
  std::int64_t lookups = 0;         // sequences that asked
  std::int64_t tokens_asked = 0;    // of their texts
  std::int64_t tokens_found = 0;    // of those, not to be computed
  std::int64_t pages_shared = 0;    // found whole
  std::int64_t pages_copied = 0;    // found in part
  std::int64_t pages_replaced = 0;  // computed twice, one of them given back
  std::int64_t pages_evicted = 0;
  double hit_rate() const {
    return tokens_asked > 0 ? static_cast<double>(tokens_found) / static_cast<double>(tokens_asked)
                            : 0.0;
  }
};

// Pages that are shared by content, between sequences that run and with those that are over.
//
// A sequence adopts what the index knows of its text, computes the rest into pages of its own,
// publishes each page that it has filled, and at its end what it has of the last one. Published
// pages stay until their memory is needed: the least recently used goes first, a text from its end.
// Nobody writes into a page that is full; a page that a text shares in part is copied first.
//
// Not thread-safe.
class PrefixCache {
 public:
  // Makes page `to` what page `from` is.
  using CopyPage = std::function<void(std::int32_t to, std::int32_t from)>;
  // A beginning shorter than `least_copied` tokens is computed rather than copied.
  PrefixCache(PagePool& pool, CopyPage copy, std::int64_t least_copied)
      : pool_(pool), copy_(std::move(copy)), least_copied_(least_copied) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();  // gives back what it holds

  // Pages that can be had: free ones and those that only the index holds.
  std::int32_t available() const { return pool_.free_pages() + pool_.idle_pages(); }

  // Pages that adopt() would share now with sequences that run, which makes them cost nothing.
  std::int32_t shared_pages(std::string_view salt, std::span<const std::int32_t> ids) const;

  // Shares pages into a table that holds what `cursor` says and nothing more. Returns how many
  // tokens of `ids` the table holds then.
  std::int64_t adopt(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
                     PrefixCursor& cursor);
  // Counts a sequence's first adoption in the statistics.
  void count(std::int64_t asked, std::int64_t found);

  // Room for positions [0, tokens). False when there are too few pages; then nothing has changed.
  [[nodiscard]] bool reserve(PageTable& table, std::int64_t tokens);

  // Puts the full pages of `ids`, all computed, into the index.
  void publish(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
               PrefixCursor& cursor);
  // The last page too, as far as it is filled. Its owner may go on filling it.
  void publish_all(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
                   PrefixCursor& cursor);

  // Cuts a text to its first `tokens` tokens: gives back what is behind them, and a page that
  // others may read and that would have to be written into. Returns how many of the tokens the
  // table still holds.
  std::int64_t truncate(PageTable& table, PrefixCursor& cursor, std::int64_t tokens);

  // Gives the pages back; what was published stays for others.
  void release(PageTable& table, PrefixCursor& cursor);

  const CacheStats& stats() const { return stats_; }
  const PrefixIndex& index() const { return index_; }

 private:
  bool evict_one();
  bool make_room(std::int32_t pages);
  void copy_beginning(PageTable& table, PrefixIndex::Node from);
  void forget(PrefixIndex::Node node);
  void forget_superseded(PrefixIndex::Node by);

  PagePool& pool_;
  CopyPage copy_;
  std::int64_t least_copied_;
  PrefixIndex index_;
  CacheStats stats_;
};

}  // namespace bl
