#include <vector>

#include "backend/ref/ref_backend.h"
#include "backend/ref/ref_ops.h"

namespace bl::ref {
namespace {

// Returns x · matrix + bias for one row.
std::vector<float> apply(ExecContext& ctx, const PackedMatrix& matrix, const TensorView& bias,
                         std::vector<float>& x) {
  std::vector<float> y(static_cast<std::size_t>(matrix.out()));
  product(ctx, {.x = view_of(x.data(), {1, matrix.in()}),
                .weight = static_cast<const RefMatrix&>(matrix).weight(),
                .out = view_of(y.data(), {1, matrix.out()})});
  if (!bias.empty()) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias.as<float>()[i];
  }
  return y;
}

// Returns down(act(gate(x)) · up(x)) for one row.
std::vector<float> apply_expert(ExecContext& ctx, const ExpertsArgs& args,
                                const ExpertWeights& expert, std::vector<float>& x) {
  const auto width = static_cast<std::size_t>(args.intermediate);
  std::vector<float> up = apply(ctx, *expert.up, expert.up_bias, x);
  std::vector<float> gate;
  if (args.fused_gate_up) {
    gate.assign(up.begin(), up.begin() + args.intermediate);
    up.erase(up.begin(), up.begin() + args.intermediate);
  } else if (expert.gate != nullptr) {
    gate = apply(ctx, *expert.gate, expert.gate_bias, x);
  }
  const bool gated = !gate.empty();
  std::vector<float> hidden(width);
  for (std::size_t i = 0; i < width; ++i) {
    hidden[i] = activated(args.activation, gated ? gate[i] : up[i], up[i], gated);
  }
  return apply(ctx, *expert.down, expert.down_bias, hidden);
}

}  // namespace

void experts(ExecContext& ctx, const ExpertsArgs& args) {
  const std::int64_t hidden = args.x.columns();
  for (std::int64_t t = 0; t < args.x.rows(); ++t) {
    for (int j = 0; j < args.k; ++j) {
      const float weight = args.weights.row<float>(t)[j];
      const auto index = static_cast<std::size_t>(args.experts[t * args.k + j]);
      std::vector<float> x(args.x.row<float>(t), args.x.row<float>(t) + hidden);
      if (args.weights_on_input) {
        for (float& value : x) value *= weight;
      }
      const std::vector<float> y = apply_expert(ctx, args, args.all[index], x);
      float* out = args.out.row<float>(t);
      for (std::size_t i = 0; i < y.size(); ++i) {
        out[i] += args.weights_on_input ? y[i] : weight * y[i];
      }
    }
  }
}

}  // namespace bl::ref
