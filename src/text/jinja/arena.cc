#include "text/jinja/arena.h"

#include <algorithm>

#include "base/error.h"

namespace bl::jinja {
namespace {

constexpr std::size_t kFirstChunk = 16u << 10;
constexpr std::size_t kLargestChunk = 1u << 20;

}  // namespace

void* Arena::take_from_new_chunk(std::size_t bytes) {
  const std::size_t wanted =
      std::max(bytes, std::min(kLargestChunk, std::max(kFirstChunk, capacity_ * 2)));
  if (wanted > limit_ || total_ > limit_ - wanted) {
    fail(ErrorCode::kLimit, "the template needs more than {} MiB of memory", limit_ >> 20);
  }
  total_ += wanted;
  // operator new aligns for every fundamental type, and no object here asks for more.
  chunks_.push_back(std::unique_ptr<char[]>(new char[wanted]));
  char* fresh = chunks_.back().get();
  // A request that is bigger than half a chunk gets a chunk of its own; the current one stays in
  // use.
  if (bytes > kLargestChunk / 2 && chunk_ != nullptr) return fresh;
  chunk_ = fresh;
  capacity_ = wanted;
  used_ = bytes;
  return fresh;
}

}  // namespace bl::jinja
