#pragma once
#include "ops/backend.h"

namespace bl {

// The CUDA backend without a card: it says what a model would take, and can do nothing else. In
// every build, so that memory can be planned where there is no card.
class CudaPlanner final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return "a plan for a card that is not here"; }
  const OpTable& ops() const override { return ops_; }

  [[noreturn]] Buffer allocate(std::size_t bytes) override;
  [[noreturn]] void upload(const TensorView& to, const TensorView& from_host) override;
  [[noreturn]] void download(const TensorView& to_host, const TensorView& from) override;
  void synchronize() override {}
  bool reads_host_memory() const override { return false; }
  std::size_t own_bytes() const override;
  std::size_t driver_bytes() const override;
  std::size_t loading_bytes() const override;
  std::size_t weight_bytes(std::size_t bytes) const override;

  [[noreturn]] std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                                  const PackOptions&) override;
  [[noreturn]] Tensor unpack(const PackedMatrix& matrix) override;
  std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions&) override;
  std::int64_t packed_inputs(const WeightMatrix& matrix) const override;
  std::size_t expert_table_bytes(std::int64_t experts) const override;
  std::size_t scratch_bytes(const ScratchShape& shape) const override;
  CacheType default_cache_type() const override { return CacheType::kF16; }

 private:
  OpTable ops_;
};

}  // namespace bl
