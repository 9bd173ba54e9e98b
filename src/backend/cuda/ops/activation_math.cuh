#pragma once
// act(gate) · up of one element (ops/elementwise.h), for kernels and for the epilogues of GEMMs.

#include "backend/cuda/device/device_math.h"
#include "ops/elementwise.h"

namespace bl::cuda {

// The parameters of ActivateArgs without its views, passed to kernels by value.
struct ActivationParameters {
  Activation kind = Activation::kSilu;
  bool limit_after = false;
  float limit = 0.0f;
  float xielu_alpha_p = 0.0f;
  float xielu_alpha_n = 0.0f;
  float xielu_beta = 0.0f;
  float xielu_eps = 0.0f;
};

inline ActivationParameters activation_parameters(const ActivateArgs& args) {
  return {args.kind,          args.limit_after, args.limit,    args.xielu_alpha_p,
          args.xielu_alpha_n, args.xielu_beta,  args.xielu_eps};
}

template <Activation kKind>
BL_HD inline float act(const ActivationParameters& p, float x) {
  if constexpr (kKind == Activation::kSilu) {
    return fast_div(x, 1.0f + fast_exp(-x));
  } else if constexpr (kKind == Activation::kGelu) {
    return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
  } else if constexpr (kKind == Activation::kGeluTanh) {
    // ½ (1 + tanh u) = σ(2u)
    const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return fast_div(x, 1.0f + fast_exp(-2.0f * u));
  } else if constexpr (kKind == Activation::kQuickGelu || kKind == Activation::kSwigluOai) {
    return fast_div(x, 1.0f + fast_exp(-1.702f * x));
  } else if constexpr (kKind == Activation::kGelu10) {
    return at_most(at_least(act<Activation::kGelu>(p, x), -10.0f), 10.0f);
  } else if constexpr (kKind == Activation::kLeakyRelu) {
    return at_least(x, 0.01f * x);
  } else if constexpr (kKind == Activation::kMish) {
    // tanh(ln(1 + e)) = (e² + 2e) / (e² + 2e + 2) with e = exp(x); beyond 20 that is 1.
    const float e = fast_exp(at_most(x, 20.0f));
    return x * fast_div(e * e + 2.0f * e, e * e + 2.0f * e + 2.0f);
  } else if constexpr (kKind == Activation::kSigmoid) {
    return fast_div(1.0f, 1.0f + fast_exp(-x));
  } else if constexpr (kKind == Activation::kTanh) {
    return std::tanh(x);
  } else if constexpr (kKind == Activation::kRelu) {
    return at_least(x, 0.0f);
  } else if constexpr (kKind == Activation::kRelu2) {
    return at_least(x, 0.0f) * at_least(x, 0.0f);
  } else if constexpr (kKind == Activation::kXielu) {
    const float linear = p.xielu_beta * x;
    if (x > 0.0f) return p.xielu_alpha_p * x * x + linear;
    return p.xielu_alpha_n * (std::expm1(at_most(x, p.xielu_eps)) - x) + linear;
  } else {
    return x;
  }
}

inline bool is_plain_silu(const ActivationParameters& p) {
  return p.kind == Activation::kSilu && p.limit <= 0.0f;
}

// Returns act(gate) · up, or act(gate) where `gated` is false.
template <Activation kKind>
BL_HD inline float activated(const ActivationParameters& p, float gate, float up, bool gated) {
  const bool limited = p.limit > 0.0f;
  if (limited) {
    if (!p.limit_after) gate = at_most(gate, p.limit);
    up = at_most(at_least(up, -p.limit), p.limit);
  }
  float g = act<kKind>(p, gate);
  if (limited && p.limit_after) g = at_most(g, p.limit);
  if (!gated) return g;
  return kKind == Activation::kSwigluOai ? g * (up + 1.0f) : g * up;
}

// activated() for a kind that is known at run time only. All threads take the same branch, so it is
// cheap.
BL_HD inline float activated(const ActivationParameters& p, float gate, float up, bool gated) {
  switch (p.kind) {
    case Activation::kNone:
      return activated<Activation::kNone>(p, gate, up, gated);
    case Activation::kSilu:
      return activated<Activation::kSilu>(p, gate, up, gated);
    case Activation::kGelu:
      return activated<Activation::kGelu>(p, gate, up, gated);
    case Activation::kGeluTanh:
      return activated<Activation::kGeluTanh>(p, gate, up, gated);
    case Activation::kQuickGelu:
      return activated<Activation::kQuickGelu>(p, gate, up, gated);
    case Activation::kGelu10:
      return activated<Activation::kGelu10>(p, gate, up, gated);
    case Activation::kRelu:
      return activated<Activation::kRelu>(p, gate, up, gated);
    case Activation::kLeakyRelu:
      return activated<Activation::kLeakyRelu>(p, gate, up, gated);
    case Activation::kRelu2:
      return activated<Activation::kRelu2>(p, gate, up, gated);
    case Activation::kMish:
      return activated<Activation::kMish>(p, gate, up, gated);
    case Activation::kSigmoid:
      return activated<Activation::kSigmoid>(p, gate, up, gated);
    case Activation::kTanh:
      return activated<Activation::kTanh>(p, gate, up, gated);
    case Activation::kXielu:
      return activated<Activation::kXielu>(p, gate, up, gated);
    case Activation::kSwigluOai:
      return activated<Activation::kSwigluOai>(p, gate, up, gated);
  }
  return gate;
}

}  // namespace bl::cuda
