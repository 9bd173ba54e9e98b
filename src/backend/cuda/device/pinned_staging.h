#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace bl::cuda {

// The page-locked staging buffers of small uploads, which let the upload return before the copy is
// made. There is one buffer for each of the two steps that may be under way (Backend::run_step).
// Memory is handed out from the start of the current buffer on. The owner calls begin() for a
// buffer only when the copies from it are known to be complete; copies from the other one may be in
// flight.
class PinnedStaging {
 public:
  static constexpr int kStepBuffers = 2;

  explicit PinnedStaging(std::size_t buffer_bytes);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Returns memory of the current buffer, aligned to 64 bytes, or null where too little is left.
  std::byte* take(std::size_t bytes);
  // Makes `step_buffer` the current buffer, with all of its memory free.
  void begin(int step_buffer);

 private:
  std::byte* data_ = nullptr;  // [kStepBuffers][size_]
  std::size_t size_ = 0;
  std::byte* buffer_ = nullptr;
  std::size_t used_ = 0;  // bytes handed out of the current buffer
};

}  // namespace bl::cuda
