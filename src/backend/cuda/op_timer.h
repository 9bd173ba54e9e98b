#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "ops/op_profile.h"

namespace bl::cuda {

// Times each op by events of the stream: from the end of all earlier work to the end of the op's
// own. An op that the card waits for, because the host enqueues it too late, includes that wait.
class EventOpTimer final : public OpTimer {
 public:
  // `stream` is where the ops run.
  EventOpTimer(OpProfile& profile, cudaStream_t stream) : profile_(profile), stream_(stream) {}
  // Throw Error (kDevice) if the runtime fails.
  void before(ExecContext& ctx, const OpCall& call) override;
  void after(ExecContext& ctx, const OpCall& call) override;
  void collect() override;

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
  Event recorded_event();

  struct TimedCall {
    OpCall call;
    Event begin;
    Event end;
  };
  OpProfile& profile_;
  cudaStream_t stream_;
  std::vector<TimedCall> calls_;
};

}  // namespace bl::cuda
