#include "backend/cuda/device/step_recorder.h"

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/joined_copies.h"

namespace bl::cuda {

void StepRecorder::clear() {
  graphs_.clear();
  keys_.clear();
}

StepRecorder::Graph StepRecorder::record(ExecContext& ctx, const Body& body) {
  BL_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  struct Captured {  // ends the capture even where the body throws
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    ~Captured() {
      if (graph == nullptr) cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  } captured{stream_};
  body(ctx);
  BL_CUDA_CHECK(cudaStreamEndCapture(stream_, &captured.graph));
  join_copies(captured.graph);
  cudaGraphExec_t executable = nullptr;
  BL_CUDA_CHECK(cudaGraphInstantiate(&executable, captured.graph, 0));
  return Graph(executable);
}

void StepRecorder::refill(ExecContext& ctx, const Body& body) {
  const OpTable* ops = ctx.ops;
  struct Restore {
    bool& replaying;
    ~Restore() { replaying = false; }
  } restore{replaying_};
  replaying_ = true;
  ctx.ops = &replay_ops_;
  body(ctx);
  ctx.ops = ops;
}

void StepRecorder::run(std::uint64_t key, ExecContext& ctx, const Body& body) {
  const StepKeys::Turn turn = keys_.next(key);
  if (turn.way == StepKeys::Way::kPlain) {
    body(ctx);
    return;
  }
  if (turn.displaced)
    graphs_.erase(*turn.displaced);  // last launched many steps ago: not in flight
  if (turn.way == StepKeys::Way::kRecord) {
    graphs_[key] = record(ctx, body);
    keys_.recorded(key);
  } else {
    refill(ctx, body);
  }
  BL_CUDA_CHECK(cudaGraphLaunch(graphs_.at(key).get(), stream_));
}

}  // namespace bl::cuda
