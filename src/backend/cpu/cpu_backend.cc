#include "backend/cpu/cpu_backend.h"

#include <cstring>

#include "backend/cpu/attention.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/products.h"
#include "base/check.h"
#include "base/error.h"

namespace bl {
namespace {

void copy(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.dtype == from.dtype && to.shape == from.shape);
  const auto row = static_cast<std::int64_t>(size_of(from.dtype));
  for (std::int64_t i = 0; i < from.rows(); ++i) {
    std::memcpy(to.as<std::byte>() + i * to.row_stride * row,
                from.as<std::byte>() + i * from.row_stride * row,
                static_cast<std::size_t>(from.columns() * row));
  }
}

std::int64_t columns_kept(const WeightMatrix& matrix, const PackOptions& options) {
  return options.out > 0 ? options.out : out_features(matrix);
}

}  // namespace

CpuBackend::CpuBackend(int threads) : CpuBackend(threads, cpu::available_isas().back()) {}

CpuBackend::CpuBackend(int threads, cpu::Isa isa)
    : isa_(isa), ops_(cpu::make_ops(isa)), pool_(threads), packer_(pool_) {}

std::string CpuBackend::description() const {
  return fmt::format("{}, {} thread{}", cpu::name_of(isa_), pool_.threads(),
                     pool_.threads() == 1 ? "" : "s");
}

void CpuBackend::upload(const TensorView& to, const TensorView& from_host) { copy(to, from_host); }
void CpuBackend::download(const TensorView& to_host, const TensorView& from) {
  copy(to_host, from);
}

std::unique_ptr<PackedMatrix> CpuBackend::pack(const WeightMatrix& matrix,
                                               const PackOptions& options) {
  return packer_.pack(matrix, columns_kept(matrix, options), options.one_thread);
}

Tensor CpuBackend::unpack(const PackedMatrix& matrix) {
  return cpu::unpack(static_cast<const cpu::CpuMatrix&>(matrix));
}

std::size_t CpuBackend::packed_bytes(const WeightMatrix& matrix, const PackOptions& options) {
  return cpu::packed_bytes(matrix, columns_kept(matrix, options));
}

std::size_t CpuBackend::scratch_bytes(const ScratchShape& shape) const {
  std::size_t bytes = cpu::product_scratch_bytes(shape.tokens, shape.max_in, pool_.threads());
  bytes += cpu::attention_scratch_bytes(shape.heads, shape.head_dim, pool_.threads());
  if (shape.experts_per_token > 0) {
    constexpr std::int64_t kMaxExperts = 4096;  // only two counters for each
    bytes += cpu::experts_scratch_bytes({.tokens = shape.tokens,
                                         .hidden = shape.max_in,
                                         .per_token = shape.experts_per_token,
                                         .experts = kMaxExperts,
                                         .intermediate = shape.expert_intermediate});
  }
  return bytes;
}

}  // namespace bl
