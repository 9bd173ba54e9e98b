#include "cache/kv_cache.h"

#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace bl {

KvCache::KvCache(Backend& backend, std::span<const KvLayout> layers, std::int32_t pages)
    : backend_(backend), pool_(pages) {
  const auto count = static_cast<std::size_t>(pages);
  const auto pool_bytes = [&](std::size_t page) {
    if (page != 0 && count > std::numeric_limits<std::size_t>::max() / page) {
      fail(ErrorCode::kOutOfMemory, "a cache of {} pages of {} bytes a layer cannot be addressed",
           pages, page);
    }
    return page * count;
  };
  for (const KvLayout& layout : layers) {
    BL_CHECK(layout.kv_heads > 0 && layout.k_dim > 0 && layout.v_dim > 0);
    Buffer k = backend.allocate(pool_bytes(layout.k_page_bytes()));
    Buffer v = backend.allocate(pool_bytes(layout.v_page_bytes()));
    views_.push_back({.layout = layout,
                      .k = static_cast<std::byte*>(k.data()),
                      .v = static_cast<std::byte*>(v.data()),
                      .pages = pages});
    buffers_.push_back(std::move(k));
    buffers_.push_back(std::move(v));
  }
}

std::size_t KvCache::bytes() const {
  std::size_t sum = 0;
  for (const Buffer& buffer : buffers_) sum += buffer.bytes();
  return sum;
}

void KvCache::copy_page(std::int32_t to, std::int32_t from) {
  BL_CHECK(to >= 0 && to < pool_.pages() && from >= 0 && from < pool_.pages());
  const auto copy = [&](std::byte* pool, std::size_t page_bytes) {
    std::byte* target = pool + static_cast<std::size_t>(to) * page_bytes;
    std::byte* source = pool + static_cast<std::size_t>(from) * page_bytes;
    if (backend_.reads_host_memory()) {
      std::memcpy(target, source, page_bytes);
      return;
    }
    const Shape shape{1, static_cast<std::int64_t>(page_bytes)};
    if (staging_.empty() || staging_.view().shape.elements() < shape.elements()) {
      staging_ = make_host_tensor(DType::kU8, shape);
    }
    const TensorView host = view_of(staging_.view().data, DType::kU8, shape);
    backend_.download(host, view_of(source, DType::kU8, shape));
    backend_.upload(view_of(target, DType::kU8, shape), host);
  };
  for (const PagedKvView& view : views_) {
    copy(view.k, view.layout.k_page_bytes());
    copy(view.v, view.layout.v_page_bytes());
  }
}

std::size_t KvCache::page_bytes(std::span<const KvLayout> layers) {
  std::size_t sum = 0;
  for (const KvLayout& layout : layers) sum += layout.k_page_bytes() + layout.v_page_bytes();
  return sum;
}

std::int32_t KvCache::pages_for(std::int64_t tokens) {
  return static_cast<std::int32_t>((tokens + kPageSlots - 1) / kPageSlots);
}

}  // namespace bl
