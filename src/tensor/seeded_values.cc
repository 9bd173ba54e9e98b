#include "tensor/seeded_values.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"

namespace bl {
namespace {

constexpr std::size_t kGrain = std::size_t{1} << 20;
constexpr int kMostThreads = 8;

// Those from byte `begin`, a multiple of kGrain, on.
void make_part(const SeededValues& values, std::byte* to, std::size_t begin, std::size_t bytes) {
  std::uint16_t halves[8];
  const std::size_t word_bytes = values.halves ? sizeof(halves) : sizeof(std::uint64_t);
  for (std::size_t done = 0; done < bytes; done += word_bytes) {
    const std::uint64_t word = seeded_word(values.seed, (begin + done) / word_bytes);
    const std::size_t count = std::min(word_bytes, bytes - done);
    if (values.halves) {
      for (int j = 0; j < 8; ++j) halves[j] = values.values[word >> 8 * j & 255];
      std::memcpy(to + begin + done, halves, count);
    } else {
      std::memcpy(to + begin + done, &word, count);
    }
  }
}

}  // namespace

void make_values(const SeededValues& values, std::byte* to, std::size_t bytes) {
  if (bytes <= kGrain) return make_part(values, to, 0, bytes);
  ThreadPool threads(std::min(kMostThreads, physical_cores()));
  const auto grains = static_cast<long>((bytes + kGrain - 1) / kGrain);
  threads.parallel_for(grains, 1, [&](long first, long last) {
    const std::size_t begin = static_cast<std::size_t>(first) * kGrain;
    make_part(values, to, begin, std::min(bytes, static_cast<std::size_t>(last) * kGrain) - begin);
  });
}

}  // namespace bl
