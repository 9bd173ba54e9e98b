#include "convert/host_fitting.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "convert/exl2_grids.h"
#include "convert/gptq_grids.h"
#include "convert/host_factor.h"
#include "convert/host_rounding.h"
#include "convert/log_sum.h"

namespace bl {

namespace {

// Calls body(row) for the rows of a matrix, on all threads where it is large: memory that is new
// takes as long to be handed out by the kernel as to be written.
template <class F>
void for_rows(const HostThreads& threads, const TensorView& matrix, const F& body) {
  constexpr std::int64_t kElements = 1 << 16;  // in a piece
  const std::int64_t grain = 1 + kElements / std::max<std::int64_t>(1, matrix.columns());
  threads.parallel(matrix.rows(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace

HostFitting::HostFitting(Backend& backend) : backend_(backend) {
  BL_CHECK(backend.reads_host_memory());
}

void HostFitting::clear(const TensorView& to) {
  const std::size_t bytes = static_cast<std::size_t>(to.columns()) * sizeof(float);
  for_rows(threads(), to, [&](std::int64_t r) { std::memset(to.row<float>(r), 0, bytes); });
}

void HostFitting::copy(const TensorView& to, const TensorView& from) {
  BL_CHECK(to.shape == from.shape);
  for_rows(threads(), to, [&](std::int64_t r) {
    std::copy_n(from.row<const float>(r), from.columns(), to.row<float>(r));
  });
}

void HostFitting::transpose(const TensorView& result, const TensorView& from) {
  constexpr std::int64_t kTile = 32;
  const std::int64_t rows = from.rows(), columns = from.columns();
  BL_CHECK(result.rows() == columns && result.columns() == rows);
  threads().parallel(columns, kTile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
      for (std::int64_t c = begin; c < end; ++c) {
        float* to = result.row<float>(c);
        for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
          to[r] = from.row<const float>(r)[c];
        }
      }
    }
  });
}

// `matmul` reads any float type.
Tensor HostFitting::load_weights(const TensorView& weight) {
  BL_CHECK(weight.row_stride == weight.columns());
  const std::size_t bytes =
      static_cast<std::size_t>(weight.shape.elements()) * size_of(weight.dtype);
  return {Buffer(std::shared_ptr<void>(), weight.data, bytes), weight.dtype, weight.shape};
}

void HostFitting::load_in_slot_order(const SlotOrderArgs& args) {
  constexpr std::int64_t kRows = 16;
  const std::int64_t in = args.weight.columns(), out = args.weight.rows();
  clear(args.out);
  visit_float_dtype(args.weight.dtype, [&]<class T>(Tag<T>) {
    threads().parallel(out, kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = 0; k < in; ++k) {
        float* to = args.out.row<float>(k);
        const std::int32_t channel = args.perm[static_cast<std::size_t>(k)];
        for (std::int64_t c = begin; c < end; ++c) {
          to[c] = static_cast<float>(args.weight.row<const T>(c)[channel]);
        }
      }
    });
  });
}

void HostFitting::add_product(const ProductArgs& args) {
  const TensorView &a = args.a, &b = args.b;
  if (!args.a_transposed) {
    if (args.b_transposed) return multiply(args, b);
    const Tensor turned = make_host_tensor(DType::kF32, {b.columns(), b.rows()});
    transpose(turned.view(), b);
    return multiply(args, turned.view());
  }
  BL_CHECK(!args.b_transposed && args.multiplier == 1.0f && a.rows() == b.rows());
  BL_CHECK(args.out.rows() == a.columns() && args.out.columns() == b.columns());
  add_outer({.a = a.as<const float>(),
             .a_stride = a.row_stride,
             .b = b.as<const float>(),
             .b_stride = b.row_stride,
             .out = args.out.as<float>(),
             .out_stride = args.out.row_stride,
             .tokens = a.rows(),
             .rows = a.columns(),
             .columns = b.columns(),
             .upper = args.upper});
}

// b: [n, k], contiguous.
void HostFitting::multiply(const ProductArgs& args, const TensorView& b) {
  const TensorView &out = args.out, &a = args.a;
  BL_CHECK(a.columns() == b.columns() && out.rows() == a.rows() && out.columns() == b.rows());
  DenseMatrix dense;
  dense.weight.view = b;
  const std::unique_ptr<PackedMatrix> weight = backend_.pack(dense, {});
  const std::size_t bytes = backend_.scratch_bytes(
      {.tokens = a.rows(), .max_in = a.columns(), .max_slots = a.columns(), .max_out = b.rows()});
  if (scratch_.capacity() < bytes) scratch_ = Arena(backend_.allocate(bytes));
  ArenaScope scope(scratch_);
  ExecContext ctx = backend_.context(scratch_);
  const MatmulOutput output{weight.get(), out, {}};
  ctx.ops->matmul(ctx, {.x = a,
                        .outputs = {&output, 1},
                        .epilogue = {.multiplier = args.multiplier, .accumulate = true}});
  backend_.synchronize();
}

void HostFitting::add_outer(const OuterSum& sum) {
  const FittingKernels& kernels = fitting_kernels();
  threads().parallel(sum.columns, kOuterColumns, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> panel(kOuterTokens * kOuterColumns);
    for (; begin < end; begin += kOuterColumns) kernels.add_outer(sum, begin, panel.data());
  });
}

void HostFitting::add_scaled(const TensorView& to, const TensorView& from, float factor) {
  BL_CHECK(to.shape == from.shape);
  for_rows(threads(), to, [&](std::int64_t r) {
    float* sum = to.row<float>(r);
    const float* values = from.row<const float>(r);
    for (std::int64_t i = 0; i < to.columns(); ++i) sum[i] += factor * values[i];
  });
}

void HostFitting::gather(const TensorView& to, std::span<const TensorView> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    copy(slice_rows(to, static_cast<std::int64_t>(i), 1), rows[i]);
  }
}

void HostFitting::scale_rows(const TensorView& x, std::span<const float> factors) {
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    float* row = x.row<float>(r);
    const float factor = factors[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < x.columns(); ++i) row[i] *= factor;
  }
}

void HostFitting::wanted_output(const WantedOutputArgs& args) {
  const std::int64_t columns = args.y.columns();
  const float inverse = 1.0f / args.multiplier;
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<const float>();
  threads().parallel(args.y.rows(), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = args.out.row<const float>(r);
      const float* less = args.stream.empty() ? nullptr : args.stream.row<const float>(r);
      float* to = args.y.row<float>(r);
      for (std::int64_t c = 0; c < columns; ++c) {
        float value = from[c];
        if (less != nullptr) value -= less[c];
        if (bias != nullptr) value -= bias[c];
        to[c] = value * inverse;
      }
    }
  });
}

void HostFitting::correction_target(const CorrectionTargetArgs& args) {
  for_rows(threads(), args.weights, [&](std::int64_t k) {
    float* to = args.product.row<float>(k);
    const float* cross = args.cross.row<const float>(args.perm[static_cast<std::size_t>(k)]);
    const float* own = args.weights.row<const float>(k);
    for (std::int64_t i = 0; i < args.cross.columns(); ++i) {
      to[i] = cross[i] / args.tokens - to[i] + args.damping * own[i];
    }
  });
}

void HostFitting::gather_symmetric(const TensorView& result, const TensorView& upper,
                                   std::span<const std::int32_t> perm) {
  for_rows(threads(), result, [&](std::int64_t i) {
    float* to = result.row<float>(i);
    const std::int32_t own = perm[static_cast<std::size_t>(i)];
    for (std::size_t j = 0; j < perm.size(); ++j) {
      to[j] = upper.row<const float>(std::min(own, perm[j]))[std::max(own, perm[j])];
    }
  });
}

double HostFitting::dot(const TensorView& a, const TensorView& b,
                        std::span<const std::int32_t> perm) {
  std::vector<double> rows(static_cast<std::size_t>(a.rows()));
  for_rows(threads(), a, [&](std::int64_t r) {
    const float* left = a.row<const float>(r);
    const std::int64_t other = perm.empty() ? r : perm[static_cast<std::size_t>(r)];
    const float* right = b.row<const float>(other);
    double row = 0.0;
    for (std::int64_t i = 0; i < b.columns(); ++i) row += static_cast<double>(left[i]) * right[i];
    rows[static_cast<std::size_t>(r)] = row;
  });
  return std::accumulate(rows.begin(), rows.end(), 0.0);
}

std::optional<FactoredHessian> HostFitting::factor(const FactorArgs& args) {
  return factor_on_host(threads(), args);
}

RoundResult HostFitting::round(const RoundArgs& args) {
  HostRounding rounding(*this, args);
  if (const auto* rules = std::get_if<GptqGridRules>(&args.rules)) {
    GptqGrids grids(*rules, args.groups.size(), args.wanted.columns());
    RoundResult result = rounding.run(grids);
    result.column_codes = std::move(grids.zeros());
    result.scales = std::move(grids.scales());
    return result;
  }
  Exl2Grids grids(args.groups, args.wanted.columns());
  RoundResult result = rounding.run(grids);
  result.column_codes = std::move(grids.scale_codes());
  result.scales = std::move(grids.scale_max());
  return result;
}

void HostFitting::softmax(const TensorView& p, const TensorView& logits,
                          std::span<double> entropies) {
  threads().parallel(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits.row<const float>(r);
      const LogSum sum = log_sum_of(row, logits.columns());
      double entropy = 0.0;
      for (std::int64_t i = 0; i < logits.columns(); ++i) {
        const double log_p = sum.log_probability(row[i]);
        const double value = std::exp(log_p);
        p.row<float>(r)[i] = static_cast<float>(value);
        entropy -= value * log_p;
      }
      entropies[static_cast<std::size_t>(r)] = entropy;
    }
  });
}

void HostFitting::divergences(const TensorView& p, std::span<const double> entropies,
                              const TensorView& logits, std::span<double> divergences) {
  threads().parallel(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits.row<const float>(r);
      const LogSum sum = log_sum_of(row, logits.columns());
      double cross = 0.0;
      for (std::int64_t i = 0; i < p.columns(); ++i) {
        cross -= static_cast<double>(p.row<const float>(r)[i]) * (row[i] - sum.largest);
      }
      const auto at = static_cast<std::size_t>(r);
      divergences[at] = std::max(cross + sum.log_sum - entropies[at], 0.0);
    }
  });
}

void HostFitting::log_probabilities(const TensorView& logits, std::span<const std::int32_t> ids,
                                    std::span<double> log_p) {
  threads().parallel(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits.row<const float>(r);
      const auto at = static_cast<std::size_t>(r);
      log_p[at] = log_sum_of(row, logits.columns()).log_probability(row[ids[at]]);
    }
  });
}

}  // namespace bl
