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

// The way of weights to the card, in laps: threads fill page-locked memory from the file while the
// card copies and packs the laps before. Source memory is free when a call returns; the card's work
// is ordered by the stream and may still be under way.
class LoadStage {
 public:
  LoadStage(DeviceMemory& memory, cudaStream_t stream);
  // Waits for the laps under way.
  ~LoadStage();
  LoadStage(const LoadStage&) = delete;
  LoadStage& operator=(const LoadStage&) = delete;

  ThreadPool& threads() { return threads_; }

  // One lap: `fill` writes `bytes` bytes to the host's memory, `use` enqueues what reads their copy
  // on the card. More than kLapBytes are taken too; then that lap grows. The first `made` bytes are
  // not filled: `use` makes them on the card.
  struct LapBytes {
    std::size_t bytes = 0;
    std::size_t made = 0;
  };
  void run(const LapBytes& lap, const std::function<void(std::byte* host)>& fill,
           const std::function<void(std::byte* device)>& use);
  // Bytes as they are, straight to their place on the card.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // The same of bytes that `fill` makes: `bytes` of them from `begin` on.
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
  // The next lap, when the card is done with it.
  Lap& next();

  DeviceMemory& memory_;
  cudaStream_t stream_;
  ThreadPool threads_;
  std::array<Lap, kLaps> laps_;
  std::size_t turn_ = 0;
};

}  // namespace bl::cuda
