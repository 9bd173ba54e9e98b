#pragma once
#include "backend/cuda/fitting/fitting_device.h"
#include "backend/cuda/fitting/row_memory.h"
#include "ops/fitting.h"

namespace bl::cuda {

// FittingOps on the card, ordered by the backend's stream.
class CudaFitting final : public FittingOps {
 public:
  // Both must outlive this.
  CudaFitting(DeviceMemory& memory, CudaDevice& device);

  Buffer allocate(std::size_t bytes) override;
  Buffer allocate_rows(std::size_t bytes) override { return rows_.take(bytes); }
  bool is_near(const TensorView& rows) const override;
  void set_row_room(std::size_t bytes) override { rows_.set_room(bytes); }

  void clear(const TensorView& to) override;
  void copy(const TensorView& to, const TensorView& from) override;
  void transpose(const TensorView& to, const TensorView& from) override;
  Tensor load_weights(const TensorView& weight) override;
  void load_in_slot_order(const SlotOrderArgs& args) override;

  void add_product(const ProductArgs& args) override;
  void add_scaled(const TensorView& to, const TensorView& from, float factor) override;
  void gather(const TensorView& to, std::span<const TensorView> rows) override;
  void scale_rows(const TensorView& x, std::span<const float> factors) override;
  void wanted_output(const WantedOutputArgs& args) override;
  void correction_target(const CorrectionTargetArgs& args) override;
  void gather_symmetric(const TensorView& to, const TensorView& upper,
                        std::span<const std::int32_t> perm) override;
  double dot(const TensorView& a, const TensorView& b, std::span<const std::int32_t> perm) override;

  std::optional<FactoredHessian> factor(const FactorArgs& args) override;
  RoundResult round(const RoundArgs& args) override;

  void softmax(const TensorView& p, const TensorView& logits, std::span<double> entropies) override;
  void divergences(const TensorView& p, std::span<const double> entropies, const TensorView& logits,
                   std::span<double> divergences) override;
  void log_probabilities(const TensorView& logits, std::span<const std::int32_t> ids,
                         std::span<double> log_p) override;

 private:
  // A matrix in host memory, as it is, in the card's memory that `owner` keeps.
  TensorView uploaded(const TensorView& host, std::shared_ptr<std::byte>& owner);
  void download(const double* from, std::span<double> to);

  FittingDevice device_;
  RowMemory rows_;
};

}  // namespace bl::cuda
