#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_memory.h"
#include "cache/page_pool.h"
#include "ops/backend.h"

namespace bl {

// The keys and values of all layers: the memory of `pages` pages, and the pool that says who owns
// them.
class KvCache final : public PageMemory {
 public:
  // `layers` has the layout of each layer with attention; all have the same cache types. The
  // backend must outlive the cache. Throws kOutOfMemory.
  KvCache(Backend& backend, std::span<const KvLayout> layers, std::int32_t pages);

  PagePool& pool() { return pool_; }
  // One view per layer, for Model::forward().
  std::span<const PagedKvView> layers() const { return views_; }
  std::size_t bytes() const;  // of all pools

  // On the host a page consists of the keys and then the values of each layer, in order.
  std::size_t page_bytes() const override;
  void copy_page(std::int32_t to, std::int32_t from) override;
  Buffer allocate_host(std::size_t bytes) override { return backend_.allocate_transfer(bytes); }
  void write_page(std::byte* host, std::int32_t page) override;
  void read_page(std::int32_t page, const std::byte* host) override;
  void finish_moves() override { backend_.synchronize(); }

  // Bytes of one page, summed over all layers.
  static std::size_t page_bytes(std::span<const KvLayout> layers);
  // Number of pages that hold `tokens` positions of one sequence.
  static std::int32_t pages_for(std::int64_t tokens);

 private:
  // Calls visit(address in the pool, offset in a page on the host, bytes) for each piece of a page.
  template <class Visit>
  void each_piece(std::int32_t page, Visit&& visit) const;

  Backend& backend_;
  Buffer memory_;  // holds all pools
  std::vector<PagedKvView> views_;
  std::vector<CopyPiece> pieces_;  // scratch of the current move
  PagePool pool_;
};

}  // namespace bl
