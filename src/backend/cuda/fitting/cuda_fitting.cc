#include "backend/cuda/fitting/cuda_fitting.h"

#include <vector>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/fitting/elementwise.h"
#include "backend/cuda/fitting/factor.h"
#include "backend/cuda/fitting/logit_rows.h"
#include "backend/cuda/fitting/product.h"
#include "backend/cuda/fitting/rounding.h"
#include "base/check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

std::size_t row_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.columns()) * size_of(view.dtype);
}

std::size_t pitch(const TensorView& view) {
  return static_cast<std::size_t>(view.row_stride) * size_of(view.dtype);
}

// Null where the card has no memory left: rows then go to the host.
std::shared_ptr<std::byte> take_if_free(DeviceMemory& memory, std::size_t bytes,
                                        cudaStream_t stream) {
  try {
    return memory.take_ordered(bytes, stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    return nullptr;
  }
}

// Page-locked where the system allows it, which copies several times as fast.
std::shared_ptr<std::byte> take_on_host(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error == cudaSuccess) {
    return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFreeHost(p); }};
  }
  static_cast<void>(cudaGetLastError());
  const auto pageable = std::make_shared<Buffer>(try_allocate_host(bytes));
  return {pageable, static_cast<std::byte*>(pageable->data())};
}

}  // namespace

CudaFitting::CudaFitting(DeviceMemory& memory, CudaDevice& device)
    : device_(memory, device),
      rows_([&memory, stream = device.stream](
                std::size_t bytes) { return take_if_free(memory, bytes, stream); },
            take_on_host) {}

Buffer CudaFitting::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  std::shared_ptr<std::byte> memory = device_.take(bytes);
  std::byte* data = memory.get();
  return {std::move(memory), data, bytes};
}

bool CudaFitting::is_near(const TensorView& rows) const {
  cudaPointerAttributes attributes{};
  BL_CUDA_CHECK(cudaPointerGetAttributes(&attributes, rows.data));
  return attributes.type == cudaMemoryTypeDevice;
}

void CudaFitting::clear(const TensorView& to) {
  BL_CUDA_CHECK(cudaMemset2DAsync(to.data, pitch(to), 0, row_bytes(to),
                                  static_cast<std::size_t>(to.rows()), device_.stream()));
}

// With cudaMemcpyDefault, the driver sees from each address whether it is host or device memory.
void CudaFitting::copy(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.shape == from.shape && to.dtype == from.dtype);
  if (pitch(to) == row_bytes(to) && pitch(from) == row_bytes(from)) {
    const std::size_t bytes = row_bytes(to) * static_cast<std::size_t>(to.rows());
    BL_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDefault, device_.stream()));
    return;
  }
  BL_CUDA_CHECK(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from), row_bytes(to),
                                  static_cast<std::size_t>(to.rows()), cudaMemcpyDefault,
                                  device_.stream()));
}

void CudaFitting::transpose(const TensorView& to, const TensorView& from) {
  cuda::transpose(device_, to, from);
}

TensorView CudaFitting::uploaded(const TensorView& host, std::shared_ptr<std::byte>& owner) {
  BL_CHECK(host.row_stride == host.columns());
  const std::size_t bytes = static_cast<std::size_t>(host.shape.elements()) * size_of(host.dtype);
  owner = device_.take(bytes);
  device_.upload(owner.get(), host.data, bytes);
  return view_of(owner.get(), host.dtype, host.shape);
}

Tensor CudaFitting::load_weights(const TensorView& weight) {
  std::shared_ptr<std::byte> owner;
  const TensorView copy = uploaded(weight, owner);
  Tensor result = device_.matrix(weight.shape);
  widen(device_, result.view(), copy);
  return result;
}

void CudaFitting::load_in_slot_order(const SlotOrderArgs& args) {
  std::shared_ptr<std::byte> owner;
  const TensorView copy = uploaded(args.weight, owner);
  const std::shared_ptr<std::int32_t> perm = device_.uploaded(args.perm);
  in_slot_order(device_, args.out, copy, perm.get());
}

void CudaFitting::add_product(const ProductArgs& args) { cuda::add_product(device_, args); }

void CudaFitting::add_scaled(const TensorView& to, const TensorView& from, float factor) {
  cuda::add_scaled(device_, to, from, factor);
}

void CudaFitting::gather(const TensorView& to, std::span<const TensorView> rows) {
  BL_CHECK(std::ssize(rows) == to.rows());
  std::vector<const float*> places;
  places.reserve(rows.size());
  bool reachable = true;
  for (const TensorView& row : rows) {
    BL_CHECK(row.rows() == 1 && row.columns() == to.columns() && row.dtype == to.dtype);
    places.push_back(row.as<const float>());
    reachable = reachable && is_reachable(row.data);
  }
  if (reachable) {
    const std::shared_ptr<const float*> own = device_.uploaded<const float*>(places);
    gather_rows(device_, to, own.get());
    return;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    copy(slice_rows(to, static_cast<std::int64_t>(i), 1), rows[i]);
  }
}

void CudaFitting::scale_rows(const TensorView& x, std::span<const float> factors) {
  const std::shared_ptr<float> own = device_.uploaded(factors);
  cuda::scale_rows(device_, x, own.get());
}

void CudaFitting::wanted_output(const WantedOutputArgs& args) {
  cuda::wanted_output(device_, args);
}

void CudaFitting::correction_target(const CorrectionTargetArgs& args) {
  const std::shared_ptr<std::int32_t> perm = device_.uploaded(args.perm);
  cuda::correction_target(device_, args, perm.get());
}

void CudaFitting::gather_symmetric(const TensorView& to, const TensorView& upper,
                                   std::span<const std::int32_t> perm) {
  const std::shared_ptr<std::int32_t> own = device_.uploaded(perm);
  cuda::gather_symmetric(device_, to, upper, own.get());
}

void CudaFitting::download(const double* from, std::span<double> to) {
  device_.download(to.data(), from, to.size_bytes());
}

double CudaFitting::dot(const TensorView& a, const TensorView& b,
                        std::span<const std::int32_t> perm) {
  std::shared_ptr<std::int32_t> own;
  if (!perm.empty()) own = device_.uploaded(perm);
  const std::shared_ptr<double> sums = device_.take_array<double>(a.rows());
  row_dots(device_, a, b, own.get(), sums.get());
  std::vector<double> rows(static_cast<std::size_t>(a.rows()));
  download(sums.get(), rows);
  double sum = 0.0;
  for (const double row : rows) sum += row;
  return sum;
}

std::optional<FactoredHessian> CudaFitting::factor(const FactorArgs& args) {
  return cuda::factor(device_, args);
}

RoundResult CudaFitting::round(const RoundArgs& args) { return cuda::round(device_, args); }

void CudaFitting::softmax(const TensorView& p, const TensorView& logits,
                          std::span<double> entropies) {
  const std::shared_ptr<double> own = device_.take_array<double>(logits.rows());
  softmax_rows(device_, p, logits, own.get());
  download(own.get(), entropies);
}

void CudaFitting::divergences(const TensorView& p, std::span<const double> entropies,
                              const TensorView& logits, std::span<double> divergences) {
  const std::shared_ptr<double> of_p = device_.uploaded(entropies);
  const std::shared_ptr<double> own = device_.take_array<double>(logits.rows());
  divergence_rows(device_, p, of_p.get(), logits, own.get());
  download(own.get(), divergences);
}

void CudaFitting::log_probabilities(const TensorView& logits, std::span<const std::int32_t> ids,
                                    std::span<double> log_p) {
  const std::shared_ptr<std::int32_t> chosen = device_.uploaded(ids);
  const std::shared_ptr<double> own = device_.take_array<double>(logits.rows());
  log_probability_rows(device_, logits, chosen.get(), own.get());
  download(own.get(), log_p);
}

}  // namespace bl::cuda
