#pragma once
#include <cstddef>
#include <string>

namespace bl::cuda {

// What kernels and plans need to know of a card.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::size_t shared_bytes_per_cta = 0;  // with opt-in
  std::size_t shared_bytes_per_multiprocessor = 0;
  std::size_t largest_pitch = 0;  // of a copy of rows
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;  // when it was opened
  bool dependent_launch() const { return compute_capability >= 90; }
};

// Throws kUnsupported, in one line, where there is no driver or no such card.
DeviceFacts read_device_facts(int index);

}  // namespace bl::cuda
