#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>

#include "backend/cuda/cuda_sizes.h"
#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/pinned_staging.h"

namespace bl {

namespace cuda {
class AttentionTables;
class CudaFitting;
class Packer;
class StepRecorder;
}  // namespace cuda

// The backend for one NVIDIA card. Activations are F32 in device memory; GEMMs take 16-bit inputs
// and give F32 sums. All work is ordered by one stream.
class CudaBackend final : public CudaSizes {
 public:
  // Throws kUnsupported, with a message of one line, where there is no driver, no card or no
  // cuBLASLt, or where the card is older than compute capability 7.5.
  explicit CudaBackend(int device);
  ~CudaBackend() override;

  std::string_view name() const override { return name_; }
  std::string description() const override;
  const OpTable& ops() const override { return ops_; }
  Device* device() override { return &device_; }
  std::unique_ptr<OpTimer> op_timer(OpProfile& profile) override;
  FittingOps* fitting() override;

  Buffer allocate(std::size_t bytes) override;
  void upload(const TensorView& to, const TensorView& from_host) override;
  void download(const TensorView& to_host, const TensorView& from) override;
  void synchronize() override;
  void copy_pieces(std::span<const CopyPiece> pieces) override;
  Buffer allocate_transfer(std::size_t bytes) override;  // page-locked
  std::uint64_t free_memory() const override;
  MemoryUse memory_use() const override { return memory_.use(); }
  std::size_t driver_bytes() const override;
  Buffer allocate_weights(std::size_t bytes) override;
  void reserve_weights(std::size_t bytes) override;
  void finish_weights() override;

  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix, const PackOptions&) override;
  std::unique_ptr<PackedExperts> pack_experts(std::span<const ExpertWeights> experts) override;
  Tensor unpack(const PackedMatrix& matrix) override;
  bool makes_seeded() const override { return true; }
  void make_seeded(const TensorView& to, const SeededValues& values) override;
  bool reorders_hidden() const override { return true; }
  const AttentionPlan* plan_attention(ExecContext& ctx,
                                      std::span<const SequenceSpan> sequences) override;
  std::uint64_t step_key(std::span<const SequenceSpan> sequences) const override;
  bool runs_ahead() const override { return true; }
  void run_step(std::uint64_t key, int step_buffer, ExecContext& ctx,
                const std::function<void(ExecContext&)>& body) override;
  void wait_step(int step_buffer) override;

  std::vector<LaunchChoice> launch_choices() const override;
  std::string launch_plan_name() const override;
  void choose_launch(std::string_view name, std::int64_t from) override;

  std::string_view page_order() const override { return "cuda rows"; }

 private:
  int multiprocessors() const override { return facts_.multiprocessors; }

  std::string name_;
  cuda::DeviceFacts facts_;
  cuda::DeviceMemory memory_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, cuda::PinnedStaging::kStepBuffers> step_over_{};
  int step_buffer_ = 0;  // the one that the latest step uses
  OpTable ops_;
  cuda::CudaDevice device_;
  std::shared_ptr<std::byte> constants_;
  std::unique_ptr<cuda::GemmState> gemm_;
  std::unique_ptr<cuda::Packer> packer_;
  std::unique_ptr<cuda::PinnedStaging> staging_;
  std::unique_ptr<cuda::AttentionTables> attention_tables_;
  std::unique_ptr<cuda::StepRecorder> recorder_;
  std::unique_ptr<cuda::CudaFitting> fitting_;  // created on first use
};

}  // namespace bl
