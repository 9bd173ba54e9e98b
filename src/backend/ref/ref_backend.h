#pragma once
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "ops/backend.h"

namespace bl {

// A matrix expanded to F32 [in, out], in original channel order, without padding.
class RefMatrix : public PackedMatrix {
 public:
  explicit RefMatrix(Tensor weight)
      : PackedMatrix(weight.view().shape[0], weight.view().shape[1]), weight_(std::move(weight)) {}
  std::size_t bytes() const override {
    return static_cast<std::size_t>(in() * out()) * sizeof(float);
  }
  const TensorView& weight() const { return weight_.view(); }  // [in, out]

 private:
  Tensor weight_;
};

// The oracle for the other backends; see README.md.
class RefBackend : public Backend {
 public:
  // `threads` has the meaning of ThreadPool's argument.
  explicit RefBackend(int threads) : pool_(threads) {}

  std::string_view name() const override { return "ref"; }
  std::string description() const override;
  const OpTable& ops() const override;
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void upload(const TensorView& to, const TensorView& from_host) override;
  void download(const TensorView& to_host, const TensorView& from) override;
  void synchronize() override {}
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix, const PackOptions&) override;
  bool packs_at_once() const override { return true; }
  Tensor unpack(const PackedMatrix& matrix) override;
  std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions&) override;
  // Only the inputs of `sample` take scratch; the ops themselves take none.
  std::size_t scratch_bytes(const ScratchShape& shape) const override {
    return shape.logit_rows > 0 ? sample_input_bytes(shape.logit_rows) : 0;
  }
  CacheType default_cache_type() const override { return CacheType::kF32; }
  ThreadPool* threads() override { return &pool_; }

 private:
  ThreadPool pool_;
};

}  // namespace bl
