#pragma once
#include "convert/fitting_kernels.h"
#include "convert/host_threads.h"
#include "ops/backend.h"
#include "ops/fitting.h"

namespace bl {

// FittingOps in host memory: products of rows and weights by the backend's `matmul`, so that each
// backend brings its own kernels; sums over tokens, which need no copy that is transposed, and
// everything else by the kernels of this folder. Results do not depend on the number of threads.
class HostFitting : public FittingOps {
 public:
  // `backend` must outlive this and read host memory.
  explicit HostFitting(Backend& backend);

  HostThreads threads() const { return HostThreads(backend_.threads()); }

  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  Buffer allocate_rows(std::size_t bytes) override { return allocate_host(bytes); }
  bool is_near(const TensorView&) const override { return true; }
  void set_row_room(std::size_t) override {}
  void clear(const TensorView& to) override;
  void copy(const TensorView& to, const TensorView& from) override;
  void transpose(const TensorView& to, const TensorView& from) override;
  Tensor load_weights(const TensorView& weight) override;
  void load_in_slot_order(const SlotOrderArgs& args) override;
  // For a transposed `a`, `b` is not, and the multiplier is 1.
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
  void multiply(const ProductArgs& args, const TensorView& b);
  void add_outer(const OuterSum& sum);

  Backend& backend_;
  Arena scratch_;
};

}  // namespace bl
