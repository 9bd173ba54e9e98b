#include "tensor/seeded_values.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"

namespace bl {
namespace {

constexpr long kGrain = 1L << 20;
constexpr int kMostThreads = 8;

// Makes bytes [begin, end) of the stream. `begin` is a multiple of kGrain, and so starts a word.
void make_part(const SeededValues& values, std::byte* to, std::size_t begin, std::size_t end) {
  std::uint16_t halves[8];
  const std::size_t word_bytes = values.halves ? sizeof(halves) : sizeof(std::uint64_t);
  for (std::size_t at = begin; at < end; at += word_bytes) {
    const std::uint64_t word = seeded_word(values.seed, at / word_bytes);
    const std::size_t count = std::min(word_bytes, end - at);
    if (values.halves) {
      for (int j = 0; j < 8; ++j) halves[j] = values.values[word >> 8 * j & 255];
      std::memcpy(to + at, halves, count);
    } else {
      std::memcpy(to + at, &word, count);
    }
  }
}

}  // namespace

void make_values(const SeededValues& values, std::byte* to, std::size_t bytes) {
  if (bytes <= std::size_t{kGrain}) return make_part(values, to, 0, bytes);
  ThreadPool threads(std::min(kMostThreads, physical_cores()));
  threads.parallel_for(static_cast<long>(bytes), kGrain, [&](long begin, long end) {
    make_part(values, to, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
}

}  // namespace bl
