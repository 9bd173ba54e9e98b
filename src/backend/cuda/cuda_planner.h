#pragma once
#include "backend/cuda/cuda_sizes.h"

namespace bl {

// The CUDA backend without a card: it says how much memory a model would take, and refuses
// everything else. It is part of every build, so that memory can be planned where there is no card.
class CudaPlanner final : public CudaSizes {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return "a plan for a card that is not here"; }
  const OpTable& ops() const override { return ops_; }

  [[noreturn]] Buffer allocate(std::size_t bytes) override;
  [[noreturn]] void upload(const TensorView& to, const TensorView& from_host) override;
  [[noreturn]] void download(const TensorView& to_host, const TensorView& from) override;
  void synchronize() override {}
  std::size_t driver_bytes() const override;

  [[noreturn]] std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                                  const PackOptions&) override;
  [[noreturn]] Tensor unpack(const PackedMatrix& matrix) override;

 private:
  // The partial results of attention grow a little with the number of multiprocessors. No current
  // card has many more than this.
  int multiprocessors() const override { return 160; }

  OpTable ops_;
};

}  // namespace bl
