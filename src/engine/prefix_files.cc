#include "engine/prefix_files.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "base/error.h"
#include "cache/page_memory.h"
#include "cache/prefix_cache.h"
#include "cache/prefix_file.h"
#include "engine/engine_core.h"
#include "engine/pinned_prefixes.h"

namespace bl {
namespace {

// Bytes of pages that are copied between two steps, and of the buffer in host memory for them.
constexpr std::size_t kBatchBytes = std::size_t{64} << 20;

// The pages of a text on loan to the caller's thread, and host memory for a batch of them. Only the
// engine's thread uses it, except for the bytes in host memory.
class HeldPages {
 public:
  explicit HeldPages(const CallEngine& call) : call_(call) {
    call_([&](EngineCore& core) {
      memory_ = core.model().page_memory();
      if (memory_ == nullptr) {
        fail(ErrorCode::kUnsupported, "the pages of this model's cache cannot leave it");
      }
      const std::size_t batch = std::max<std::size_t>(kBatchBytes / memory_->page_bytes(), 1);
      buffer_ = memory_->allocate_host(batch * memory_->page_bytes());
      if (buffer_.data() == nullptr) {
        fail(ErrorCode::kOutOfMemory, "there is no memory for {} pages of {} bytes", batch,
             memory_->page_bytes());
      }
      lent_ = core.lend();
    });
  }
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;
  // The call may fail for lack of memory, or because the engine has ended. Then the engine's next
  // step gives the pages back, or its end has done so.
  ~HeldPages() {
    lent_.reset();
    try {
      call_([](EngineCore& core) { core.take_back(); });
    } catch (const std::exception&) {
    }
  }

  // How many pages fit into the buffer.
  std::int64_t batch() const {
    return static_cast<std::int64_t>(buffer_.bytes() / memory_->page_bytes());
  }
  std::span<std::byte> bytes(std::int64_t page_of_batch) const {
    const std::size_t size = memory_->page_bytes();
    return {
        static_cast<std::byte*>(buffer_.data()) + static_cast<std::size_t>(page_of_batch) * size,
        size};
  }

  // Borrows what the cache has of a text. Returns how many whole pages that is.
  std::int64_t adopt(const std::string& salt, std::span<const std::int32_t> ids) {
    PrefixCursor found;
    do {
      call_([&](EngineCore& core) {
        core.cache().begin_step({}, batch());
        core.cache().adopt(salt, ids, *lent_->table, lent_->cursor);
        found = lent_->cursor;
      });
    } while (found.waits);
    return found.tokens / kPageSlots;
  }

  // Copies the pages [first, first + count) into the buffer.
  void fill_buffer(std::int64_t first, std::int64_t count) {
    call_([&](EngineCore&) {
      for (std::int64_t i = 0; i < count; ++i) {
        memory_->write_page(bytes(i).data(),
                            lent_->table->pages()[static_cast<std::size_t>(first + i)]);
      }
      memory_->finish_moves();
    });
  }

  // Puts `count` pages from the buffer into the cache, behind those of the text that are held.
  void publish(const PrefixText& text, std::int64_t count) {
    call_([&](EngineCore& core) {
      const std::int64_t first = lent_->cursor.tokens / kPageSlots;
      const std::int64_t end = (first + count) * kPageSlots;
      if (!core.cache().reserve(*lent_->table, end)) {
        fail(ErrorCode::kLimit, "the cache has no room for a prefix of {} pages: {} can be had",
             text.pages(), first + core.cache().available());
      }
      for (std::int64_t i = 0; i < count; ++i) {
        memory_->read_page(lent_->table->pages()[static_cast<std::size_t>(first + i)],
                           bytes(i).data());
      }
      memory_->finish_moves();
      core.cache().publish(text.salt, std::span(text.ids).first(static_cast<std::size_t>(end)),
                           *lent_->table, lent_->cursor);
    });
  }

  void pin(const std::string& name, const PrefixText& text) {
    call_([&](EngineCore& core) {
      const std::string error = core.pins().pin(name, text.salt, text.ids, lent_->table->pages());
      if (!error.empty()) fail(ErrorCode::kLimit, "{}", error);
    });
  }

 private:
  CallEngine call_;
  PageMemory* memory_ = nullptr;
  Buffer buffer_;
  std::shared_ptr<LentPages> lent_;
};

}  // namespace

SavedPrefix save_prefix_file(const CallEngine& call, PrefixText text,
                             const std::filesystem::path& file) {
  HeldPages held(call);
  const std::int64_t pages = held.adopt(text.salt, text.ids);
  if (pages == 0) {
    fail(ErrorCode::kNotFound,
         "nothing can be saved to {}: the cache has no whole page of this text of {} tokens (a "
         "page holds {}); a request computes them",
         file.string(), text.ids.size(), kPageSlots);
  }
  text.ids.resize(static_cast<std::size_t>(pages * kPageSlots));
  PrefixWriter writer(file, text);
  for (std::int64_t first = 0; first < pages; first += held.batch()) {
    const std::int64_t count = std::min(held.batch(), pages - first);
    held.fill_buffer(first, count);
    for (std::int64_t i = 0; i < count; ++i) writer.write_page(held.bytes(i));
  }
  writer.commit();
  return {pages * kPageSlots, writer.bytes()};
}

SavedPrefix load_prefix_file(const CallEngine& call, const PageKind& kind,
                             const std::filesystem::path& file, const std::string& pin) {
  PinnedPrefixes::check_name(pin);
  PrefixReader reader(file);
  const PrefixText& text = reader.text();
  reader.check_kind(kind);
  HeldPages held(call);
  call([&](EngineCore& core) {
    const std::int64_t ids = core.model().facts().ids;
    const auto bad = std::find_if(text.ids.begin(), text.ids.end(),
                                  [&](std::int32_t id) { return id < 0 || id >= ids; });
    if (bad != text.ids.end()) {
      fail(ErrorCode::kInvalidFile, "{}: token {}, the model's ids are 0 … {}", file.string(), *bad,
           ids - 1);
    }
    const std::int32_t pages = core.model().pool().pages();
    if (text.pages() > pages) {
      fail(ErrorCode::kLimit, "{}: {} pages of {} tokens, and the cache has {}", file.string(),
           text.pages(), kPageSlots, pages);
    }
  });
  // Pages that the cache has already are shared, and need no room of their own.
  const std::int64_t known = held.adopt(text.salt, text.ids);
  reader.skip(known);
  for (std::int64_t first = known; first < text.pages(); first += held.batch()) {
    const std::int64_t count = std::min(held.batch(), text.pages() - first);
    for (std::int64_t i = 0; i < count; ++i) reader.read_page(held.bytes(i));
    held.publish(text, count);
  }
  if (!pin.empty()) held.pin(pin, text);
  return {text.pages() * kPageSlots, reader.bytes()};
}

}  // namespace bl
