#pragma once
#include <memory>
#include <string>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/packer.h"
#include "base/thread_pool.h"
#include "ops/backend.h"

namespace bl {

// The CPU backend: threads and SIMD, see README.md.
class CpuBackend : public Backend {
 public:
  // `threads` has the meaning of ThreadPool's argument. Uses the best instruction set available, or
  // `isa`.
  explicit CpuBackend(int threads);
  CpuBackend(int threads, cpu::Isa isa);

  std::string_view name() const override { return "cpu"; }
  std::string description() const override;
  const OpTable& ops() const override { return ops_; }
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void upload(const TensorView& to, const TensorView& from_host) override;
  void download(const TensorView& to_host, const TensorView& from) override;
  void synchronize() override {}
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override;
  bool packs_at_once() const override { return true; }
  Tensor unpack(const PackedMatrix& matrix) override;
  std::size_t packed_bytes(const WeightMatrix& matrix, const PackOptions& options) override;
  std::size_t scratch_bytes(const ScratchShape& shape) const override;
  CacheType default_cache_type() const override { return CacheType::kF16; }
  std::string_view page_order() const override { return "sixteen keys abreast"; }
  ThreadPool* threads() override { return &pool_; }

 private:
  cpu::Isa isa_;
  cpu::CpuOps ops_;
  ThreadPool pool_;
  cpu::Packer packer_;
};

}  // namespace bl
