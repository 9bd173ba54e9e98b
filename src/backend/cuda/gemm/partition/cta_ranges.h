#pragma once
// Which n_tiles each CTA of a launch multiplies: for host and kernels.

#include <cstdint>
#include <span>

namespace bl::cuda {

// The n_tiles of all matrices of a launch count one after the other; CTA i has those from begins[i]
// to begins[i + 1]. The memory is PartitionCache's.
struct CtaRanges {
  int ctas = 0;
  std::span<const std::int32_t> begins;  // [ctas + 1]

  // The most n_tiles that one CTA has.
  int longest() const {
    int most = 0;
    for (int i = 0; i < ctas; ++i) {
      const int own = begins[static_cast<std::size_t>(i) + 1] - begins[static_cast<std::size_t>(i)];
      most = own > most ? own : most;
    }
    return most;
  }
};

// CtaRanges::begins as a kernel parameter, which saves every CTA a dependent load at its start.
struct CtaRangeBegins {
  static constexpr int kMost = 192;
  const std::int32_t* far = nullptr;  // device memory, where there are more CTAs than `near` holds
  std::int32_t near[kMost + 1] = {};

  CtaRangeBegins() = default;
  // `device_begins`: the device's copy of ranges.begins; null is fine for up to kMost CTAs.
  CtaRangeBegins(const CtaRanges& ranges, const std::int32_t* device_begins);
};

}  // namespace bl::cuda
