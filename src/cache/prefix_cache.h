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

// What of a sequence stands in the index: its first `tokens` tokens, whose last page is `node`.
struct PrefixCursor {
  PrefixIndex::Node node = PrefixIndex::kNone;
  std::int64_t tokens = 0;  // a multiple of kPageSlots
  bool waits = false;       // the next page is on the host, and enough was moved in this step
};

// What shared_pages() has found for a text: it goes on from there.
struct SharedBeginning {
  PrefixIndex::Node node = PrefixIndex::kNone;  // of the last page
  std::uint64_t number = 0;                     // of the node, whose place another may take
  std::int32_t pages = 0;
  std::uint64_t changes = UINT64_MAX;  // of the cache until then
};

struct CacheStats {
  std::int64_t lookups = 0;         // sequences that asked
  std::int64_t tokens_asked = 0;    // of their texts
  std::int64_t tokens_found = 0;    // of those, not to be computed
  std::int64_t pages_shared = 0;    // found whole
  std::int64_t pages_copied = 0;    // found in part
  std::int64_t pages_replaced = 0;  // computed twice, one of them given back
  std::int64_t pages_evicted = 0;
  // The host's part: pages that were evicted into it, that came back, and that it gave up.
  std::int64_t pages_stored = 0;
  std::int64_t pages_restored = 0;
  std::int64_t pages_dropped = 0;
  std::int64_t tokens_restored = 0;
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
// With a host tier, what is evicted goes there if that is worth it, and comes back when a text asks
// for it. A page is in one of both at a time. The tier evicts in the same order.
//
// Moving and copying pages throws what PageMemory and CopyPage do, and bad_alloc may come from
// every call but truncate() and release(). Pool, index and tier stay as they should be; a table
// that was being filled may have pages too many, and is to be released.
//
// Not thread-safe.
class PrefixCache {
 public:
  // Makes page `to` what page `from` is.
  using CopyPage = std::function<void(std::int32_t to, std::int32_t from)>;
  // A beginning shorter than `least_copied` tokens is computed rather than copied.
  // `tier` may be null, and must outlive the cache.
  PrefixCache(PagePool& pool, CopyPage copy, std::int64_t least_copied, HostTier* tier = nullptr)
      : pool_(pool), copy_(std::move(copy)), least_copied_(least_copied), tier_(tier) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();  // gives back what it holds

  // What moving and computing cost now; adopt() brings back at most so many pages until the next
  // call, so that a long text holds nobody up.
  void begin_step(const TierRates& rates, std::int64_t restored_pages);

  // Pages that can be had: free ones and those that only the index holds.
  std::int32_t available() const { return pool_.free_pages() + pool_.idle_pages(); }

  // Pages that adopt() would share now with sequences that run, which makes them cost nothing.
  // `known` is of the same text, or of a beginning of it, and costs next to nothing to ask again.
  std::int32_t shared_pages(std::string_view salt, std::span<const std::int32_t> ids,
                            SharedBeginning& known) const;
  std::int32_t shared_pages(std::string_view salt, std::span<const std::int32_t> ids) const {
    SharedBeginning none;
    return shared_pages(salt, ids, none);
  }
  // Tokens of a text's beginning that are known in full pages.
  std::int64_t known_tokens(std::string_view salt, std::span<const std::int32_t> ids) const;

  // Shares pages into a table that holds what `cursor` says and nothing more. Returns how many
  // tokens of `ids` the table holds then; cursor.waits says that there is more, a step later.
  std::int64_t adopt(std::string_view salt, std::span<const std::int32_t> ids, PageTable& table,
                     PrefixCursor& cursor);
  // Counts a sequence's first adoption in the statistics, and what it finds later.
  void count(std::int64_t asked, std::int64_t found);
  void count_found(std::int64_t tokens) { stats_.tokens_found += tokens; }

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
  // Evicts all pages that nobody uses: to the host where there is a tier, else they are given up.
  void evict_all();

  // Gives the pages back; what was published stays for others.
  void release(PageTable& table, PrefixCursor& cursor);

  const CacheStats& stats() const { return stats_; }
  const PrefixIndex& index() const { return index_; }

 private:
  // Whether an evicted page may push others out of the host's memory, or takes the slot that is
  // kept free for a page that comes back.
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
  std::int64_t restorable_ = INT64_MAX;  // pages, in this step
  PrefixIndex index_;
  CacheStats stats_;
};

}  // namespace bl
