#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/ref/ref_ops.h"

namespace bl::ref {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

double xielu(const ActivateArgs& args, double x) {
  const double linear = static_cast<double>(args.xielu_beta) * x;
  if (x > 0) return static_cast<double>(args.xielu_alpha_p) * x * x + linear;
  const double bounded = std::min(x, static_cast<double>(args.xielu_eps));
  return static_cast<double>(args.xielu_alpha_n) * (std::expm1(bounded) - x) + linear;
}

double activation(const ActivateArgs& args, double x) {
  switch (args.kind) {
    case Activation::kNone:
      return x;
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kQuickGelu:
    case Activation::kSwigluOai:
      return x * sigmoid(1.702 * x);
    case Activation::kGelu10:
      return std::clamp(gelu(x), -10.0, 10.0);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kLeakyRelu:
      return x < 0.0 ? 0.01 * x : x;
    case Activation::kRelu2:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kMish:
      return x * std::tanh(x > 30.0 ? x : std::log1p(std::exp(x)));
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kXielu:
      return xielu(args, x);
  }
  return x;
}

}  // namespace

float activated(const ActivateArgs& args, float gate, float up, bool gated) {
  const bool limited = args.limit > 0.0f;
  if (limited) {
    if (!args.limit_after) gate = std::min(gate, args.limit);
    up = std::clamp(up, -args.limit, args.limit);
  }
  double g = activation(args, gate);
  if (limited && args.limit_after) g = std::min(g, double{args.limit});
  if (!gated) return static_cast<float>(g);
  const double u = up;
  return static_cast<float>(args.kind == Activation::kSwigluOai ? g * (u + 1.0) : g * u);
}

void embed(ExecContext& ctx, const EmbedArgs& args) {
  visit_float_dtype(args.table.dtype, [&]<class T>(Tag<T>) {
    for_range(ctx, args.tokens, 16, [&](long begin, long end) {
      for (long t = begin; t < end; ++t) {
        const T* row = args.table.row<T>(args.ids[t]);
        float* out = args.out.row<float>(t);
        for (std::int64_t i = 0; i < args.out.columns(); ++i) {
          const float value = static_cast<float>(row[i]) * args.multiplier;
          out[i] = args.accumulate ? out[i] + value : value;
        }
      }
    });
  });
}

void activate(ExecContext& ctx, const ActivateArgs& args) {
  const bool gated = !args.up.empty();
  for_range(ctx, args.gate.rows(), 4, [&](long begin, long end) {
    for (long t = begin; t < end; ++t) {
      const float* g = args.gate.row<float>(t);
      const float* u = gated ? args.up.row<float>(t) : g;
      float* out = args.out.row<float>(t);
      for (std::int64_t i = 0; i < args.gate.columns(); ++i) {
        out[i] = activated(args, g[i], u[i], gated);
      }
    }
  });
}

void add(ExecContext&, const AddArgs& args) {
  for (std::int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = args.x.row<float>(t);
    const float* y = args.y.row<float>(t);
    for (std::int64_t i = 0; i < args.x.columns(); ++i) x[i] += args.multiplier * y[i];
  }
}

void scale(ExecContext&, const ScaleArgs& args) {
  const double cap = args.softcap;
  for (std::int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = args.x.row<float>(t);
    for (std::int64_t i = 0; i < args.x.columns(); ++i) {
      x[i] *= args.multiplier;
      if (cap > 0) x[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
    }
  }
}

void gate(ExecContext&, const GateArgs& args) {
  const std::int64_t share = args.x.columns() / args.gate.columns();
  for (std::int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = args.x.row<float>(t);
    const float* g = args.gate.row<float>(t);
    for (std::int64_t i = 0; i < args.x.columns(); ++i) {
      const double raw = g[i / share];
      const double factor =
          args.softplus ? std::max(raw, 0.0) + std::log1p(std::exp(-std::fabs(raw))) : sigmoid(raw);
      x[i] = static_cast<float>(static_cast<double>(x[i]) * factor);
    }
  }
}

void clamp(ExecContext&, const ClampArgs& args) {
  for (std::int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = args.x.row<float>(t);
    for (std::int64_t i = 0; i < args.x.columns(); ++i) {
      x[i] = std::clamp(x[i], -args.limit, args.limit);
    }
  }
}

void copy_rows(ExecContext&, const CopyRowsArgs& args) {
  const std::size_t bytes = static_cast<std::size_t>(args.x.columns()) * size_of(args.x.dtype);
  const auto at = [](const TensorView& view, std::int64_t row) {
    return view.as<std::byte>() +
           row * view.row_stride * static_cast<std::int64_t>(size_of(view.dtype));
  };
  for (std::int64_t i = 0; i < args.count; ++i) {
    std::memcpy(at(args.out, i), at(args.x, args.rows[i]), bytes);
  }
}

void add_rows(ExecContext&, const AddRowsArgs& args) {
  for (std::int64_t i = 0; i < args.y.rows(); ++i) {
    float* x = args.x.row<float>(args.rows[i]);
    const float* y = args.y.row<float>(i);
    for (std::int64_t c = 0; c < args.y.columns(); ++c) x[c] += args.weights[i] * y[c];
  }
}

}  // namespace bl::ref
