#include "backend/cuda/cuda_backend.h"

#include <cstring>

#include "backend/cuda/attention/attention_tables.h"
#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/piece_runs.h"
#include "backend/cuda/device/read_device_facts.h"
#include "backend/cuda/device/step_recorder.h"
#include "backend/cuda/embedded_launch_plans.h"
#include "backend/cuda/fitting/cuda_fitting.h"
#include "backend/cuda/gemm/gemm_state.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "backend/cuda/layout/packed_size.h"
#include "backend/cuda/moe/cuda_experts.h"
#include "backend/cuda/op_table.h"
#include "backend/cuda/op_timer.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "backend/cuda/weights/packer.h"
#include "backend/cuda/weights/seeded_kernels.h"
#include "base/check.h"
#include "base/error.h"

namespace bl {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{16} << 20;  // of one step buffer
// Larger uploads are not staged: the call waits for the copy.
constexpr std::size_t kLargestStaged = std::size_t{2} << 20;

std::size_t row_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.columns()) * size_of(view.dtype);
}

std::size_t pitch(const TensorView& view) {
  return static_cast<std::size_t>(view.row_stride) * size_of(view.dtype);
}

}  // namespace

CudaBackend::CudaBackend(int device)
    : name_(fmt::format("cuda:{}", device)),
      facts_(cuda::read_device_facts(device)),
      memory_(fmt::format("{} ({})", name_, facts_.name)),
      ops_(cuda::make_ops()) {
  gemm_ = std::make_unique<cuda::GemmState>(
      cuda::find_launch_plan(embedded_launch_plans(), facts_.compute_capability), memory_);
  BL_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : step_over_) {
    BL_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  constexpr float kConstants[] = {0.0f, 1.0f};
  constants_ = memory_.take(sizeof kConstants);
  BL_CUDA_CHECK(
      cudaMemcpy(constants_.get(), kConstants, sizeof kConstants, cudaMemcpyHostToDevice));
  device_.facts_ = &facts_;
  device_.stream = stream_;
  device_.constants = reinterpret_cast<const float*>(constants_.get());
  device_.gemm = gemm_.get();
  device_.dependent_launch = facts_.dependent_launch();
  packer_ = std::make_unique<cuda::Packer>(memory_, stream_);
  staging_ = std::make_unique<cuda::PinnedStaging>(kStagingBytes);
  attention_tables_ = std::make_unique<cuda::AttentionTables>();
  recorder_ = std::make_unique<cuda::StepRecorder>(stream_, cuda::make_replay_ops());
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_);
  fitting_.reset();
  packer_.reset();
  recorder_.reset();
  staging_.reset();
  gemm_.reset();
  for (cudaEvent_t event : step_over_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

std::string CudaBackend::description() const {
  return fmt::format("{}, compute capability {}.{}, {:.0f} GiB", facts_.name,
                     facts_.compute_capability / 10, facts_.compute_capability % 10,
                     static_cast<double>(facts_.memory_bytes) / (1 << 30));
}

Buffer CudaBackend::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  std::shared_ptr<std::byte> memory = memory_.take(bytes);
  std::byte* data = memory.get();
  return {std::move(memory), data, bytes};
}

Buffer CudaBackend::allocate_weights(std::size_t bytes) {
  if (bytes == 0) return {};
  std::shared_ptr<std::byte> memory = packer_->take(bytes);
  std::byte* data = memory.get();
  return {std::move(memory), data, bytes};
}

void CudaBackend::reserve_weights(std::size_t bytes) { packer_->reserve(bytes); }

void CudaBackend::finish_weights() { packer_->finish(); }

std::size_t CudaBackend::driver_bytes() const { return cuda::kDriverBytes; }

void CudaBackend::upload(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.dtype == from.dtype && to.shape == from.shape);
  const std::size_t bytes = static_cast<std::size_t>(from.shape.elements()) * size_of(from.dtype);
  if (bytes == 0) return;
  const bool plain = pitch(to) == row_bytes(to) && pitch(from) == row_bytes(from);
  if (plain && bytes <= kLargestStaged) {
    std::byte* staged = staging_->take(bytes);
    if (staged == nullptr && !recorder_->replaying()) {
      synchronize();
      staged = staging_->take(bytes);
    }
    BL_CHECK(staged != nullptr);
    std::memcpy(staged, from.data, bytes);
    if (recorder_->replaying()) return;
    BL_CUDA_CHECK(cudaMemcpyAsync(to.data, staged, bytes, cudaMemcpyHostToDevice, stream_));
    return;
  }
  BL_CHECK(!recorder_->replaying());
  if (plain && packer_->upload(to.as<std::byte>(), from.as<const std::byte>(), bytes)) return;
  BL_CUDA_CHECK(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from), row_bytes(to),
                                  static_cast<std::size_t>(to.rows()), cudaMemcpyHostToDevice,
                                  stream_));
  synchronize();
}

void CudaBackend::download(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.dtype == from.dtype && to.shape == from.shape);
  if (from.shape.elements() == 0) return;
  BL_CUDA_CHECK(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from), row_bytes(to),
                                  static_cast<std::size_t>(to.rows()), cudaMemcpyDeviceToHost,
                                  stream_));
  synchronize();
}

void CudaBackend::synchronize() {
  BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  staging_->begin(step_buffer_);
}

// With cudaMemcpyDefault, the driver sees from each address whether it is host or device memory.
void CudaBackend::copy_pieces(std::span<const CopyPiece> pieces) {
  if (recorder_->replaying()) return;
  for (const cuda::PieceRun& run : cuda::runs_of(pieces, facts_.largest_pitch)) {
    const CopyPiece& first = run.first;
    if (run.rows == 1) {
      BL_CUDA_CHECK(cudaMemcpyAsync(first.to, first.from, first.bytes, cudaMemcpyDefault, stream_));
    } else {
      BL_CUDA_CHECK(cudaMemcpy2DAsync(first.to, run.to_pitch, first.from, run.from_pitch,
                                      first.bytes, run.rows, cudaMemcpyDefault, stream_));
    }
  }
}

Buffer CudaBackend::allocate_transfer(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  BL_CUDA_CHECK(error);
  return {data, bytes, [](void* p, std::size_t) { cudaFreeHost(p); }};
}

std::uint64_t CudaBackend::free_memory() const {
  std::size_t free = 0;
  std::size_t total = 0;
  BL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

std::unique_ptr<PackedMatrix> CudaBackend::pack(const WeightMatrix& matrix,
                                                const PackOptions& options) {
  return packer_->pack(matrix, options);
}

void CudaBackend::make_seeded(const TensorView& to, const SeededValues& values) {
  BL_CHECK(pitch(to) == row_bytes(to));
  const std::size_t bytes = static_cast<std::size_t>(to.shape.elements()) * size_of(to.dtype);
  cuda::launch_seeded_bytes(values, to.as<std::byte>(), bytes, stream_);
}

std::unique_ptr<PackedExperts> CudaBackend::pack_experts(std::span<const ExpertWeights> experts) {
  return std::make_unique<cuda::CudaExperts>(*this, experts);
}

Tensor CudaBackend::unpack(const PackedMatrix& matrix) {
  return packer_->unpack(static_cast<const cuda::CudaMatrix&>(matrix));
}

const AttentionPlan* CudaBackend::plan_attention(ExecContext& ctx,
                                                 std::span<const SequenceSpan> sequences) {
  return attention_tables_->plan(ctx, *this, sequences);
}

std::uint64_t CudaBackend::step_key(std::span<const SequenceSpan> sequences) const {
  return cuda::count_spans(sequences).graph_key();
}

std::vector<LaunchChoice> CudaBackend::launch_choices() const {
  std::vector<LaunchChoice> choices = cuda::choices_of(gemm_->launch_plan);
  for (LaunchChoice& choice : choices) {
    const bool there = choice.name != "wgmma_from" || cuda::has_wgmma(facts_);
    if (!there) choice.least = choice.most = choice.from;
  }
  return choices;
}

std::string CudaBackend::launch_plan_name() const {
  return fmt::format("cc{}", facts_.compute_capability);
}

void CudaBackend::choose_launch(std::string_view name, std::int64_t from) {
  synchronize();
  cuda::set_choice(gemm_->launch_plan, name, from);
  recorder_->clear();  // the captured graphs hold the old choice
}

std::unique_ptr<OpTimer> CudaBackend::op_timer(OpProfile& profile) {
  return std::make_unique<cuda::EventOpTimer>(profile, stream_);
}

FittingOps* CudaBackend::fitting() {
  if (fitting_ == nullptr) fitting_ = std::make_unique<cuda::CudaFitting>(memory_, device_);
  return fitting_.get();
}

void CudaBackend::run_step(std::uint64_t key, int step_buffer, ExecContext& ctx,
                           const std::function<void(ExecContext&)>& body) {
  // Uploads since the latest step went through its step buffer too, so its end moves behind them.
  BL_CUDA_CHECK(cudaEventRecord(step_over_[static_cast<std::size_t>(step_buffer_)], stream_));
  step_buffer_ = step_buffer;
  wait_step(step_buffer);
  // The copies in a captured graph read from fixed addresses: uploads begin at the buffer's start.
  staging_->begin(step_buffer);
  // A table that wraps this backend's own hears of the ops of every step only if steps run op by
  // op.
  if (key == 0 || ctx.ops != &ops_) {
    body(ctx);
  } else {
    recorder_->run(key + static_cast<std::uint64_t>(step_buffer), ctx, body);
  }
  BL_CUDA_CHECK(cudaEventRecord(step_over_[static_cast<std::size_t>(step_buffer)], stream_));
}

void CudaBackend::wait_step(int step_buffer) {
  BL_CUDA_CHECK(cudaEventSynchronize(step_over_[static_cast<std::size_t>(step_buffer)]));
}

}  // namespace bl
