#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "ops/backend.h"

namespace bl {

// The keys and values of all layers: memory for so many pages, and who owns them.
class KvCache {
 public:
  // `layers`: layout of each layer that attends, all of one cache type. The backend must outlive
  // the cache. Throws kOutOfMemory.
  KvCache(Backend& backend, std::span<const KvLayout> layers, std::int32_t pages);

  PagePool& pool() { return pool_; }
  // One view a layer, for the model's forward.
  std::span<const PagedKvView> layers() const { return views_; }
  std::size_t bytes() const;

  // Makes page `to` what page `from` is, in all layers.
  void copy_page(std::int32_t to, std::int32_t from);

  // Bytes of one page over all layers.
  static std::size_t page_bytes(std::span<const KvLayout> layers);
  // Pages that hold `tokens` positions of one sequence.
  static std::int32_t pages_for(std::int64_t tokens);

 private:
  Backend& backend_;
  std::vector<Buffer> buffers_;
  std::vector<PagedKvView> views_;
  Tensor staging_;  // host memory, where the backend's is another
  PagePool pool_;
};

}  // namespace bl
