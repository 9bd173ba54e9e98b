#include "cache/kv_cache.h"

#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace bl {

KvCache::KvCache(Backend& backend, std::span<const KvLayout> layers, std::int32_t pages)
    : backend_(backend), pool_(pages) {
  const auto count = static_cast<std::size_t>(pages);
  const auto pool_bytes = [&](std::size_t page) {
    if (page != 0 && count > std::numeric_limits<std::size_t>::max() / page) {
      fail(ErrorCode::kOutOfMemory,
           "a cache of {} pages with {} bytes each cannot be addressed; use a smaller --ctx", pages,
           page);
    }
    return page * count;
  };
  // One allocation, because devices round each one up. Since pages have 256 slots, every pool is
  // aligned.
  static_assert(kPageSlots % 256 == 0);
  memory_ = backend.allocate(pool_bytes(page_bytes(layers)));
  auto* at = static_cast<std::byte*>(memory_.data());
  for (const KvLayout& layout : layers) {
    BL_CHECK(layout.kv_heads > 0 && layout.k_dim > 0 && layout.v_dim > 0);
    std::byte* v = at + layout.k_page_bytes() * count;
    views_.push_back({.layout = layout, .k = at, .v = v, .pages = pages});
    at = v + layout.v_page_bytes() * count;
  }
}

std::size_t KvCache::bytes() const { return memory_.bytes(); }

template <class Visit>
void KvCache::each_piece(std::int32_t page, Visit&& visit) const {
  BL_CHECK(page >= 0 && page < pool_.pages());
  const auto index = static_cast<std::size_t>(page);
  std::size_t offset = 0;
  for (const PagedKvView& view : views_) {
    const std::size_t k_bytes = view.layout.k_page_bytes();
    const std::size_t v_bytes = view.layout.v_page_bytes();
    visit(view.k + index * k_bytes, offset, k_bytes);
    visit(view.v + index * v_bytes, offset + k_bytes, v_bytes);
    offset += k_bytes + v_bytes;
  }
}

std::size_t KvCache::page_bytes() const {
  std::size_t sum = 0;
  for (const PagedKvView& view : views_) {
    sum += view.layout.k_page_bytes() + view.layout.v_page_bytes();
  }
  return sum;
}

void KvCache::copy_page(std::int32_t to, std::int32_t from) {
  pieces_.clear();
  each_piece(to, [&](std::byte* place, std::size_t, std::size_t bytes) {
    pieces_.push_back({place, nullptr, bytes});
  });
  std::size_t i = 0;
  each_piece(from, [&](std::byte* place, std::size_t, std::size_t) { pieces_[i++].from = place; });
  backend_.copy_pieces(pieces_);
}

void KvCache::write_page(std::byte* host, std::int32_t page) {
  pieces_.clear();
  each_piece(page, [&](std::byte* place, std::size_t offset, std::size_t bytes) {
    pieces_.push_back({host + offset, place, bytes});
  });
  backend_.copy_pieces(pieces_);
}

void KvCache::read_page(std::int32_t page, const std::byte* host) {
  pieces_.clear();
  each_piece(page, [&](std::byte* place, std::size_t offset, std::size_t bytes) {
    pieces_.push_back({place, host + offset, bytes});
  });
  backend_.copy_pieces(pieces_);
}

std::size_t KvCache::page_bytes(std::span<const KvLayout> layers) {
  std::size_t sum = 0;
  for (const KvLayout& layout : layers) sum += layout.k_page_bytes() + layout.v_page_bytes();
  return sum;
}

std::int32_t KvCache::pages_for(std::int64_t tokens) {
  return static_cast<std::int32_t>(bl::pages_for(tokens));
}

}  // namespace bl
