#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/layout/packed_size.h"
#include "base/thread_pool.h"

namespace bl::cuda {

// Uploads weights in laps: threads fill page-locked memory from the file, while the card copies and
// packs the laps before. A call has read its source when it returns; the card's work is ordered by
// the stream and may still be running.
class LoadStage {
 public:
  LoadStage(DeviceMemory& memory, cudaStream_t stream);
  // Waits for the laps that are still running.
  ~LoadStage();
  LoadStage(const LoadStage&) = delete;
  LoadStage& operator=(const LoadStage&) = delete;

  ThreadPool& threads() { return threads_; }

  // One lap: `fill` writes `bytes` bytes to host memory, and `use` enqueues the work that reads
  // their copy on the card. A lap of more than kLapBytes grows its buffers. The first `made` bytes
  // are not filled: `use` generates them on the card.
  struct LapBytes {
    std::size_t bytes = 0;
    std::size_t made = 0;
  };
  void run(const LapBytes& lap, const std::function<void(std::byte* host)>& fill,
           const std::function<void(std::byte* device)>& use);
  // Copies bytes unchanged to `to` on the card.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // As copy(), of bytes that `fill` produces: `bytes` of them from `begin` on.
  void make(std::byte* to, std::size_t bytes,
            const std::function<void(std::byte* host, std::size_t begin, std::size_t bytes)>& fill);

 private:
  struct Lap {
    std::shared_ptr<std::byte> host;  // page-locked
    std::shared_ptr<std::byte> device;
    std::size_t size = 0;
    cudaEvent_t done = nullptr;
  };
  void grow(Lap& lap, std::size_t bytes);
  // Returns the next lap when the card is done with it.
  Lap& next();

  DeviceMemory& memory_;
  cudaStream_t stream_;
  ThreadPool threads_;
  std::array<Lap, kLaps> laps_;
  std::size_t turn_ = 0;
};

}  // namespace bl::cuda
