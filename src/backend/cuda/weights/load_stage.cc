#include "backend/cuda/weights/load_stage.h"

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/weights/column_slice.h"

namespace bl::cuda {
namespace {

// More threads do not read a page cache faster.
constexpr int kMostThreads = 8;

}  // namespace

LoadStage::LoadStage(DeviceMemory& memory, cudaStream_t stream)
    : memory_(memory), stream_(stream), threads_(std::min(kMostThreads, physical_cores())) {
  for (Lap& lap : laps_) {
    grow(lap, kLapBytes);
    BL_CUDA_CHECK(cudaEventCreateWithFlags(&lap.done, cudaEventDisableTiming));
  }
}

LoadStage::~LoadStage() {
  cudaStreamSynchronize(stream_);
  for (Lap& lap : laps_) cudaEventDestroy(lap.done);
}

void LoadStage::grow(Lap& lap, std::size_t bytes) {
  lap.host.reset();
  lap.device.reset();
  lap.size = 0;
  void* host = nullptr;
  BL_CUDA_CHECK(cudaMallocHost(&host, bytes));
  lap.host = {static_cast<std::byte*>(host), [](std::byte* p) { cudaFreeHost(p); }};
  lap.device = memory_.take(bytes);
  lap.size = bytes;
}

LoadStage::Lap& LoadStage::next() {
  Lap& lap = laps_[turn_++ % laps_.size()];
  BL_CUDA_CHECK(cudaEventSynchronize(lap.done));
  return lap;
}

void LoadStage::run(const LapBytes& of, const std::function<void(std::byte* host)>& fill,
                    const std::function<void(std::byte* device)>& use) {
  Lap& lap = next();
  if (of.bytes > lap.size) grow(lap, of.bytes);
  fill(lap.host.get());
  BL_CUDA_CHECK(cudaMemcpyAsync(lap.device.get() + of.made, lap.host.get() + of.made,
                                of.bytes - of.made, cudaMemcpyHostToDevice, stream_));
  use(lap.device.get());
  BL_CUDA_CHECK(cudaEventRecord(lap.done, stream_));
}

void LoadStage::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  make(to, bytes, [&](std::byte* host, std::size_t begin, std::size_t count) {
    copy_bytes(host, from + begin, count, threads_);
  });
}

void LoadStage::make(
    std::byte* to, std::size_t bytes,
    const std::function<void(std::byte* host, std::size_t begin, std::size_t bytes)>& fill) {
  for (std::size_t begin = 0; begin < bytes; begin += kLapBytes) {
    Lap& lap = next();
    const std::size_t count = std::min(kLapBytes, bytes - begin);
    fill(lap.host.get(), begin, count);
    BL_CUDA_CHECK(
        cudaMemcpyAsync(to + begin, lap.host.get(), count, cudaMemcpyHostToDevice, stream_));
    BL_CUDA_CHECK(cudaEventRecord(lap.done, stream_));
  }
}

}  // namespace bl::cuda
