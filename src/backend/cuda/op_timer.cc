#include "backend/cuda/op_timer.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

EventOpTimer::Event EventOpTimer::recorded_event() {
  cudaEvent_t raw = nullptr;
  BL_CUDA_CHECK(cudaEventCreate(&raw));
  Event event(raw);
  BL_CUDA_CHECK(cudaEventRecord(raw, stream_));
  return event;
}

void EventOpTimer::before(ExecContext& /*ctx*/, const OpCall& call) {
  calls_.push_back({call, recorded_event(), nullptr});
}

void EventOpTimer::after(ExecContext& /*ctx*/, const OpCall& /*call*/) {
  calls_.back().end = recorded_event();
}

void EventOpTimer::collect() {
  BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (const TimedCall& timed : calls_) {
    float milliseconds = 0;
    BL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, timed.begin.get(), timed.end.get()));
    profile_.add(timed.call, milliseconds * 1e-3);
  }
  calls_.clear();
}

}  // namespace bl::cuda
