#include "backend/ref/ref_backend.h"

#include <cstring>
#include <variant>
#include <vector>

#include "base/check.h"
#include "format/dequantize.h"

namespace bl {
namespace {

void copy(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.dtype == from.dtype && to.shape == from.shape);
  const std::size_t bytes = static_cast<std::size_t>(from.columns()) * size_of(from.dtype);
  const auto stride = [](const TensorView& view) {
    return view.row_stride * static_cast<std::int64_t>(size_of(view.dtype));
  };
  for (std::int64_t i = 0; i < from.rows(); ++i) {
    std::memcpy(to.as<std::byte>() + i * stride(to), from.as<std::byte>() + i * stride(from),
                bytes);
  }
}

// Copies the first weight.columns() output columns of a dense matrix to F32 [in, out].
void expand_dense(const DenseMatrix& matrix, const TensorView& weight) {
  const TensorView& stored = matrix.weight.view;
  visit_float_dtype(stored.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t i = 0; i < weight.rows(); ++i) {
      float* row = weight.row<float>(i);
      for (std::int64_t c = 0; c < weight.columns(); ++c) {
        row[c] = static_cast<float>(matrix.transposed ? stored.row<T>(i)[c] : stored.row<T>(c)[i]);
      }
    }
  });
}

}  // namespace

std::string RefBackend::description() const {
  const int threads = pool_.threads();
  return "naive fp32, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

void RefBackend::upload(const TensorView& to, const TensorView& from_host) { copy(to, from_host); }
void RefBackend::download(const TensorView& to_host, const TensorView& from) {
  copy(to_host, from);
}

std::unique_ptr<PackedMatrix> RefBackend::pack(const WeightMatrix& matrix,
                                               const PackOptions& options) {
  const std::int64_t in = in_features(matrix);
  const std::int64_t stored_out = out_features(matrix);
  const std::int64_t out = options.out > 0 ? options.out : stored_out;
  BL_CHECK(out <= stored_out);
  Tensor weight = make_host_tensor(DType::kF32, {in, out});
  if (const auto* dense = std::get_if<DenseMatrix>(&matrix)) {
    expand_dense(*dense, weight.view());
  } else {
    const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
    for (std::int64_t i = 0; i < in; ++i) {
      float* row = weight.view().row<float>(i);
      const std::uint16_t* stored = halves.data() + i * stored_out;
      for (std::int64_t c = 0; c < out; ++c) row[c] = half_to_float(stored[c]);
    }
  }
  return std::make_unique<RefMatrix>(std::move(weight));
}

Tensor RefBackend::unpack(const PackedMatrix& matrix) {
  const TensorView& weight = static_cast<const RefMatrix&>(matrix).weight();
  Tensor result = make_host_tensor(DType::kF32, weight.shape);
  copy(result.view(), weight);
  return result;
}

std::size_t RefBackend::packed_bytes(const WeightMatrix& matrix, const PackOptions& options) {
  const std::int64_t out = options.out > 0 ? options.out : out_features(matrix);
  return static_cast<std::size_t>(in_features(matrix) * out) * sizeof(float);
}

}  // namespace bl
