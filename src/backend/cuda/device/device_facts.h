#pragma once
#include <cstddef>
#include <string>

namespace bl::cuda {

// The properties of a card that kernels and plans depend on.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::size_t shared_bytes_per_cta = 0;  // the maximum, with opt-in
  std::size_t shared_bytes_per_multiprocessor = 0;
  std::size_t largest_pitch = 0;  // of a two-dimensional copy, in bytes
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;  // when the card was opened
  // Where the card stands in for one of an earlier capability (stand_in.h): its own
  // shared_bytes_per_multiprocessor, while the members above are those of that capability. Else 0.
  std::size_t card_shared_bytes_per_multiprocessor = 0;
  bool is_stand_in() const { return card_shared_bytes_per_multiprocessor != 0; }
  bool dependent_launch() const { return compute_capability >= 90; }
  // Whether there are cp.async and mbarriers, from which the pipeline of the int8 GEMV is made.
  bool shared_pipelines() const { return compute_capability >= 80; }
};

}  // namespace bl::cuda
