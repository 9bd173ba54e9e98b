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
  bool dependent_launch() const { return compute_capability >= 90; }
};

// Makes the card current and reads its properties. Throws kUnsupported where there is no usable
// driver, no card or a card older than compute capability 7.5, and kInvalidArgument where `index`
// is out of range.
DeviceFacts read_device_facts(int index);

}  // namespace bl::cuda
