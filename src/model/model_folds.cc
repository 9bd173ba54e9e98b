#include "model/model_folds.h"

#include <cmath>
#include <numbers>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "format/quoted_name.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

// Changes vectors of one channel after another.
class ChannelFolder {
 public:
  ChannelFolder(const ChannelFold& fold, std::int64_t channels) : fold_(fold) {
    BL_CHECK(fold.factors.empty() || std::ssize(fold.factors) == channels);
    if (fold.run == 0) return;
    BL_CHECK(fold.run > 0 && channels % fold.run == 0);
    stretch_ = fold.run & -fold.run;
    stretches_ = fold.run / stretch_;
    norm_ = 1.0f / std::sqrt(static_cast<float>(fold.run));
    for (std::int64_t i = 0; i < stretches_; ++i) {
      const double angle =
          2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(stretches_);
      hartley_.push_back(static_cast<float>(std::cos(angle) + std::sin(angle)));
    }
    old_.resize(static_cast<std::size_t>(stretches_));
  }

  void apply(std::span<float> values) {
    for (std::size_t c = 0; c < fold_.factors.size(); ++c) values[c] *= fold_.factors[c];
    if (fold_.run == 0) return;
    const auto run = static_cast<std::size_t>(fold_.run);
    for (std::size_t first = 0; first < values.size(); first += run) {
      rotate(values.subspan(first, run).data());
    }
  }

 private:
  void rotate(float* run) {
    for (std::int64_t half = 1; half < stretch_; half *= 2) {
      for (std::int64_t first = 0; first < fold_.run; first += 2 * half) {
        for (std::int64_t i = first; i < first + half; ++i) {
          const float sum = run[i] + run[i + half];
          run[i + half] = run[i] - run[i + half];
          run[i] = sum;
        }
      }
    }
    for (std::int64_t i = 0; i < stretch_; ++i) mix_stretches(run + i);
  }

  // Multiplies the values at one place of all stretches by Hartley's matrix, cos + sin of 2πjk/n,
  // and by what makes the whole rotation orthogonal.
  void mix_stretches(float* values) {
    for (std::int64_t k = 0; k < stretches_; ++k) {
      old_[static_cast<std::size_t>(k)] = values[k * stretch_];
    }
    for (std::int64_t j = 0; j < stretches_; ++j) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < stretches_; ++k) {
        sum += hartley_[static_cast<std::size_t>(j * k % stretches_)] *
               old_[static_cast<std::size_t>(k)];
      }
      values[j * stretch_] = sum * norm_;
    }
  }

  const ChannelFold& fold_;
  std::int64_t stretch_ = 1, stretches_ = 1;
  float norm_ = 1.0f;
  std::vector<float> hartley_;
  std::vector<float> old_;
};

HostArray owned(Tensor tensor) {
  const auto owner = std::make_shared<Tensor>(std::move(tensor));
  return {owner->view(), owner};
}

// The weights as F32 [out, in] if `by_output`, else as their transpose.
Tensor weights_of(const DenseMatrix& matrix, bool by_output) {
  const std::int64_t out = matrix.out(), in = matrix.in();
  Tensor result = make_host_tensor(DType::kF32, by_output ? Shape{out, in} : Shape{in, out});
  const bool flip = matrix.transposed == by_output;
  const TensorView& from = matrix.weight.view;
  visit_float_dtype(from.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t r = 0; r < from.rows(); ++r) {
      const T* row = from.row<const T>(r);
      for (std::int64_t c = 0; c < from.columns(); ++c) {
        result.view().row<float>(flip ? c : r)[flip ? r : c] = static_cast<float>(row[c]);
      }
    }
  });
  return result;
}

}  // namespace

void fold_columns(const TensorView& view, const ChannelFold& fold) {
  if (fold.empty()) return;
  ChannelFolder folder(fold, view.columns());
  for (std::int64_t r = 0; r < view.rows(); ++r) {
    folder.apply({view.row<float>(r), static_cast<std::size_t>(view.columns())});
  }
}

HostArray folded_bias(const HostArray& stored, const ChannelFold& outputs) {
  const TensorView& from = stored.view;
  if (from.empty()) return {};
  const std::int64_t count = from.shape.elements();
  Tensor bias = make_host_tensor(DType::kF32, {count});
  auto* values = bias.view().as<float>();
  visit_float_dtype(from.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(from.as<const T>()[i]);
  });
  ChannelFolder(outputs, count).apply({values, static_cast<std::size_t>(count)});
  return owned(std::move(bias));
}

DenseMatrix folded(const DenseMatrix& matrix, const MatrixFold& fold) {
  DenseMatrix result;
  result.name = matrix.name;
  result.bias = folded_bias(matrix.bias, fold.outputs);
  if (fold.outputs.empty()) {
    result.weight = owned(weights_of(matrix, true));
  } else {
    const Tensor by_input = weights_of(matrix, false);
    fold_columns(by_input.view(), fold.outputs);
    DenseMatrix half;
    half.weight = {by_input.view(), {}};
    half.transposed = true;
    result.weight = owned(weights_of(half, true));
  }
  fold_columns(result.weight.view, fold.inputs);
  return result;
}

HostArray folded_table(const std::string& name, const TensorView& table, const ChannelFold& fold) {
  Tensor result = make_host_tensor(DType::kF16, {table.rows(), table.columns()});
  ChannelFolder folder(fold, table.columns());
  std::vector<float> row(static_cast<std::size_t>(table.columns()));
  visit_float_dtype(table.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t r = 0; r < table.rows(); ++r) {
      const T* from = table.row<const T>(r);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(from[c]);
      folder.apply(row);
      Half* to = result.view().row<Half>(r);
      for (std::size_t c = 0; c < row.size(); ++c) {
        to[c] = Half(row[c]);
        if (std::isfinite(static_cast<float>(to[c]))) continue;
        fail(ErrorCode::kInvalidArgument,
             "{} rotated has the value {}, which is beyond binary16; convert with --fold none",
             quoted_name(name), row[c]);
      }
    }
  });
  return owned(std::move(result));
}

}  // namespace bl
