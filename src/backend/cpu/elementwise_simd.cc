#include "backend/cpu/element_simd.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/simd/vec_runs.h"

namespace bl::cpu::BL_ISA {
namespace {

F32x16 xielu(const ActivateArgs& args, F32x16 x) {
  const F32x16 linear = F32x16::splat(args.xielu_beta) * x;
  const F32x16 above = fma(F32x16::splat(args.xielu_alpha_p) * x, x, linear);
  const F32x16 bounded = min(x, F32x16::splat(args.xielu_eps));
  const F32x16 below = fma(F32x16::splat(args.xielu_alpha_n), expm1(bounded) - x, linear);
  return select_less(F32x16::splat(0.0f), x, above, below);
}

// tanh(ln(1 + e)) = (e² + 2e) / (e² + 2e + 2) with e = exp(x); beyond 20 that is 1.
F32x16 mish(F32x16 x) {
  const F32x16 e = exp(min(x, F32x16::splat(20.0f)));
  const F32x16 above = fma(e, e, e + e);
  return x * (above / (above + F32x16::splat(2.0f)));
}

template <Activation kind>
F32x16 activation(const ActivateArgs& args, F32x16 x) {
  const F32x16 zero = F32x16::splat(0.0f);
  if constexpr (kind == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kind == Activation::kGelu) return x * normal_cdf(x);
  if constexpr (kind == Activation::kGeluTanh) {
    // ½ (1 + tanh u) = σ(2u)
    const F32x16 cubic = fma(F32x16::splat(0.044715f) * x, x, F32x16::splat(1.0f));
    return x * sigmoid(F32x16::splat(1.5957691216f) * x * cubic);
  }
  if constexpr (kind == Activation::kQuickGelu || kind == Activation::kSwigluOai) {
    return x * sigmoid(F32x16::splat(1.702f) * x);
  }
  if constexpr (kind == Activation::kGelu10) {
    return min(max(x * normal_cdf(x), F32x16::splat(-10.0f)), F32x16::splat(10.0f));
  }
  if constexpr (kind == Activation::kRelu) return max(x, zero);
  if constexpr (kind == Activation::kLeakyRelu) return max(x, F32x16::splat(0.01f) * x);
  if constexpr (kind == Activation::kMish) return mish(x);
  if constexpr (kind == Activation::kSigmoid) return sigmoid(x);
  if constexpr (kind == Activation::kTanh) return tanh(x);
  if constexpr (kind == Activation::kRelu2) return max(x, zero) * max(x, zero);
  if constexpr (kind == Activation::kXielu) return xielu(args, x);
  return x;
}

struct ActivateRun {
  const float* gate;
  const float* up;
  float* out;
  std::int64_t count;
};

template <Activation kind>
void activate_as(const ActivateArgs& args, const ActivateRun& run) {
  const bool limited = args.limit > 0.0f;
  const F32x16 high = F32x16::splat(args.limit);
  const F32x16 low = F32x16::splat(-args.limit);
  for_runs(run.count, [&](std::int64_t i, int n) {
    F32x16 g = load(run.gate + i, n);
    if (limited && !args.limit_after) g = min(g, high);
    F32x16 y = activation<kind>(args, g);
    if (limited && args.limit_after) y = min(y, high);
    if (run.up != nullptr) {
      F32x16 u = load(run.up + i, n);
      if (limited) u = min(max(u, low), high);
      y = y * (kind == Activation::kSwigluOai ? u + F32x16::splat(1.0f) : u);
    }
    store(y, run.out + i, n);
  });
}

}  // namespace

void embed(const EmbedRow& row) {
  const F32x16 multiplier = F32x16::splat(row.multiplier);
  const auto* bytes = static_cast<const char*>(row.row);
  for_runs(row.width, [&](std::int64_t i, int n) {
    F32x16 value;
    if (row.dtype == DType::kF16) {
      value =
          n == 16 ? F32x16::load_half(bytes + 2 * i) : F32x16::load_half_first(bytes + 2 * i, n);
    } else if (row.dtype == DType::kBF16) {
      value = n == 16 ? F32x16::load_bfloat(bytes + 2 * i)
                      : F32x16::load_bfloat_first(bytes + 2 * i, n);
    } else {
      value = load(reinterpret_cast<const float*>(bytes) + i, n);
    }
    value = value * multiplier;
    store(row.accumulate ? load(row.out + i, n) + value : value, row.out + i, n);
  });
}

void activate(const ActivateArgs& args, const float* gate, const float* up, float* out,
              std::int64_t count) {
  const ActivateRun run{gate, up, out, count};
  switch (args.kind) {
    case Activation::kNone:
      return activate_as<Activation::kNone>(args, run);
    case Activation::kSilu:
      return activate_as<Activation::kSilu>(args, run);
    case Activation::kGelu:
      return activate_as<Activation::kGelu>(args, run);
    case Activation::kGeluTanh:
      return activate_as<Activation::kGeluTanh>(args, run);
    case Activation::kQuickGelu:
      return activate_as<Activation::kQuickGelu>(args, run);
    case Activation::kGelu10:
      return activate_as<Activation::kGelu10>(args, run);
    case Activation::kRelu:
      return activate_as<Activation::kRelu>(args, run);
    case Activation::kLeakyRelu:
      return activate_as<Activation::kLeakyRelu>(args, run);
    case Activation::kRelu2:
      return activate_as<Activation::kRelu2>(args, run);
    case Activation::kMish:
      return activate_as<Activation::kMish>(args, run);
    case Activation::kSigmoid:
      return activate_as<Activation::kSigmoid>(args, run);
    case Activation::kTanh:
      return activate_as<Activation::kTanh>(args, run);
    case Activation::kXielu:
      return activate_as<Activation::kXielu>(args, run);
    case Activation::kSwigluOai:
      return activate_as<Activation::kSwigluOai>(args, run);
  }
}

void add(float* x, const float* y, float multiplier, std::int64_t count) {
  const F32x16 m = F32x16::splat(multiplier);
  for_runs(count,
           [&](std::int64_t i, int n) { store(fma(m, load(y + i, n), load(x + i, n)), x + i, n); });
}

void scale(float* x, float multiplier, float softcap, std::int64_t count) {
  const F32x16 m = F32x16::splat(multiplier);
  const F32x16 cap = F32x16::splat(softcap);
  for_runs(count, [&](std::int64_t i, int n) {
    const F32x16 y = load(x + i, n) * m;
    store(softcap > 0.0f ? cap * tanh(y / cap) : y, x + i, n);
  });
}

void clamp(float* x, float limit, std::int64_t count) {
  const F32x16 high = F32x16::splat(limit);
  const F32x16 low = F32x16::splat(-limit);
  for_runs(count,
           [&](std::int64_t i, int n) { store(min(max(load(x + i, n), low), high), x + i, n); });
}

void gate(float* x, const float* gate, std::int64_t count) {
  for_runs(count, [&](std::int64_t i, int n) {
    store(load(x + i, n) * sigmoid(load(gate + i, n)), x + i, n);
  });
}

}  // namespace bl::cpu::BL_ISA
