#include "backend/cuda/device/step_recorder.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {
namespace {

// A graph holds a few megabytes; lengths come and go.
constexpr std::size_t kMostGraphs = 64;

}  // namespace

StepRecorder::~StepRecorder() { clear(); }

void StepRecorder::clear() {
  for (auto& [key, entry] : entries_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
  entries_.clear();
}

void StepRecorder::record(Entry& entry, ExecContext& ctx, const Body& body) {
  BL_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  struct Ended {  // a body that throws must not leave the stream recording
    cudaStream_t stream;
    cudaGraph_t* graph;
    ~Ended() {
      if (*graph == nullptr) cudaStreamEndCapture(stream, graph);
    }
  };
  {
    Ended ended{stream_, &graph};
    body(ctx);
    BL_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  }
  const cudaError_t error = cudaGraphInstantiate(&entry.graph, graph, 0);
  cudaGraphDestroy(graph);
  BL_CUDA_CHECK(error);
}

void StepRecorder::run(std::uint64_t key, ExecContext& ctx, const Body& body) {
  Entry& entry = entries_[key];
  if (entry.runs++ == 0) {
    body(ctx);
    return;
  }
  if (entry.graph == nullptr) {
    if (entries_.size() > kMostGraphs) {
      body(ctx);
      return;
    }
    record(entry, ctx, body);
  } else {
    const OpTable* ops = ctx.ops;
    struct Loud {
      bool& silent;
      ~Loud() { silent = false; }
    } loud{silent_now_};
    silent_now_ = true;
    ctx.ops = &silent_;
    body(ctx);
    ctx.ops = ops;
  }
  BL_CUDA_CHECK(cudaGraphLaunch(entry.graph, stream_));
}

}  // namespace bl::cuda
