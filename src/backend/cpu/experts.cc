// Mixture of experts. Pairs (token, expert) are sorted by expert and processed in waves of experts,
// so that the matrices of a wave share parallel regions while scratch memory stays bounded. A
// token's experts are added in the order of their indices, whatever else is in the batch.

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/products.h"
#include "base/check.h"

namespace bl::cpu {
namespace {

constexpr std::int64_t kWaveExperts = 16;

struct Pair {
  std::int32_t token = 0;
  std::int32_t choice = 0;  // index j in experts[token, j]
};

struct Sorted {
  const Pair* pairs = nullptr;          // [tokens · k], sorted by expert, then by token
  const std::int32_t* first = nullptr;  // [experts + 1]
};

Sorted sort_by_expert(ExecContext& ctx, const ExpertsArgs& args) {
  const std::int64_t tokens = args.x.rows();
  const auto experts = static_cast<std::int64_t>(args.all.size());
  auto* first = ctx.scratch->take(DType::kI32, {experts + 1}).as<std::int32_t>();
  auto* next = ctx.scratch->take(DType::kI32, {experts + 1}).as<std::int32_t>();
  auto* pairs = ctx.scratch->take(DType::kI64, {tokens * args.k}).as<Pair>();
  std::fill(first, first + experts + 1, 0);
  for (std::int64_t i = 0; i < tokens * args.k; ++i) ++first[args.experts[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  std::copy(first, first + experts + 1, next);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int j = 0; j < args.k; ++j) {
      const std::int32_t expert = args.experts[t * args.k + j];
      pairs[next[expert]++] = {static_cast<std::int32_t>(t), j};
    }
  }
  return {pairs, first};
}

// The pairs of some consecutive experts.
struct Wave {
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  std::int64_t first_pair = 0;
  std::int64_t pairs = 0;
};

// Buffers of a wave, large enough for any wave.
struct WaveBuffers {
  TensorView x;     // [pairs, hidden]
  TensorView gate;  // [pairs, intermediate] or empty
  TensorView up;    // [pairs, intermediate], or [pairs, 2 · intermediate] when fused
  TensorView y;     // [pairs, hidden]
};

const float* bias_of(const TensorView& bias) {
  return bias.empty() ? nullptr : bias.as<const float>();
}

class ExpertsRun {
 public:
  ExpertsRun(ExecContext& ctx, const ExpertsArgs& args)
      : ctx_(ctx), args_(args), sorted_(sort_by_expert(ctx, args)) {
    const std::int64_t pairs = wave_pairs(args.x.rows(), args.k);
    const std::int64_t hidden = args.x.columns();
    buffers_.x = ctx.scratch->take_f32({pairs, hidden});
    buffers_.up = ctx.scratch->take_f32({pairs, args.intermediate * (args.fused_gate_up ? 2 : 1)});
    if (!args.fused_gate_up && args.all[0].gate != nullptr) {
      buffers_.gate = ctx.scratch->take_f32({pairs, args.intermediate});
    }
    buffers_.y = ctx.scratch->take_f32({pairs, hidden});
  }

  void run() {
    const auto experts = static_cast<std::int64_t>(args_.all.size());
    const std::int64_t room = buffers_.x.rows();
    Wave wave;
    for (std::int64_t e = 0; e < experts; ++e) {
      std::int64_t begin = sorted_.first[e];
      const std::int64_t end = sorted_.first[e + 1];
      while (begin < end) {
        if (wave.experts == kWaveExperts || wave.pairs == room) flush(wave);
        const std::int64_t taken = std::min(end - begin, room - wave.pairs);
        if (wave.pairs == 0) wave = {e, 0, begin, 0};
        wave.experts = e - wave.first_expert + 1;
        wave.pairs += taken;
        begin += taken;
        if (wave.experts >= kWaveExperts) flush(wave);
      }
    }
    flush(wave);
  }

 private:
  void flush(Wave& wave) {
    if (wave.pairs == 0) return;
    gather(wave);
    multiply_up(wave);
    activate(wave);
    multiply_down(wave);
    add(wave);
    wave = {};
  }

  float weight_of(const Pair& pair) const {
    return args_.weights.row<const float>(pair.token)[pair.choice];
  }

  void gather(const Wave& wave) {
    const auto width = static_cast<std::size_t>(args_.x.columns());
    for (std::int64_t i = 0; i < wave.pairs; ++i) {
      const Pair& pair = sorted_.pairs[wave.first_pair + i];
      const float* from = args_.x.row<const float>(pair.token);
      float* to = buffers_.x.row<float>(i);
      std::memcpy(to, from, width * sizeof(float));
      if (!args_.weights_on_input) continue;
      const float weight = weight_of(pair);
      for (std::size_t c = 0; c < width; ++c) to[c] *= weight;
    }
  }

  // Calls f(expert, first row in the wave, number of rows) for each expert of the wave that has
  // rows.
  template <class F>
  void for_each_expert(const Wave& wave, const F& f) const {
    const std::int64_t last = wave.first_pair + wave.pairs;
    for (std::int64_t e = wave.first_expert; e < wave.first_expert + wave.experts; ++e) {
      const std::int64_t begin = std::max<std::int64_t>(sorted_.first[e], wave.first_pair);
      const std::int64_t end = std::min<std::int64_t>(sorted_.first[e + 1], last);
      if (begin < end) {
        f(args_.all[static_cast<std::size_t>(e)], begin - wave.first_pair, end - begin);
      }
    }
  }

  void multiply_up(const Wave& wave) {
    std::array<Product, 2 * kWaveExperts> products;
    std::size_t count = 0;
    for_each_expert(wave, [&](const ExpertWeights& expert, std::int64_t row, std::int64_t rows) {
      const TensorView x = slice_rows(buffers_.x, row, rows);
      products[count++] = {.weight = static_cast<const CpuMatrix*>(expert.up),
                           .x = x,
                           .out = slice_rows(buffers_.up, row, rows),
                           .bias = bias_of(expert.up_bias)};
      if (!buffers_.gate.empty()) {
        products[count++] = {.weight = static_cast<const CpuMatrix*>(expert.gate),
                             .x = x,
                             .out = slice_rows(buffers_.gate, row, rows),
                             .bias = bias_of(expert.gate_bias)};
      }
    });
    run_products(ctx_, {products.data(), count});
  }

  // The activated values: the gate half of `up` if fused, else `gate`, else `up`.
  TensorView hidden(const Wave& wave) const {
    if (!buffers_.gate.empty()) return slice_rows(buffers_.gate, 0, wave.pairs);
    return slice_columns(slice_rows(buffers_.up, 0, wave.pairs), 0, args_.intermediate);
  }

  void activate(const Wave& wave) {
    ActivateArgs activation = args_.activation;
    activation.gate = hidden(wave);
    activation.out = activation.gate;
    if (args_.fused_gate_up) {
      activation.up = slice_columns(slice_rows(buffers_.up, 0, wave.pairs), args_.intermediate,
                                    args_.intermediate);
    } else if (!buffers_.gate.empty()) {
      activation.up = slice_rows(buffers_.up, 0, wave.pairs);
    } else {
      activation.up = {};
    }
    ctx_.ops->activate(ctx_, activation);
  }

  void multiply_down(const Wave& wave) {
    std::array<Product, kWaveExperts> products;
    std::size_t count = 0;
    const TensorView x = hidden(wave);
    for_each_expert(wave, [&](const ExpertWeights& expert, std::int64_t row, std::int64_t rows) {
      products[count++] = {.weight = static_cast<const CpuMatrix*>(expert.down),
                           .x = slice_rows(x, row, rows),
                           .out = slice_rows(buffers_.y, row, rows),
                           .bias = bias_of(expert.down_bias)};
    });
    run_products(ctx_, {products.data(), count});
  }

  void add(const Wave& wave) {
    const std::int64_t width = args_.out.columns();
    for (std::int64_t i = 0; i < wave.pairs; ++i) {
      const Pair& pair = sorted_.pairs[wave.first_pair + i];
      const float weight = args_.weights_on_input ? 1.0f : weight_of(pair);
      const float* y = buffers_.y.row<const float>(i);
      float* out = args_.out.row<float>(pair.token);
      for (std::int64_t c = 0; c < width; ++c) out[c] += weight * y[c];
    }
  }

  ExecContext& ctx_;
  const ExpertsArgs& args_;
  Sorted sorted_;
  WaveBuffers buffers_;
};

}  // namespace

std::int64_t wave_pairs(std::int64_t tokens, std::int64_t per_token) {
  constexpr std::int64_t kMinPairs = 64;
  constexpr std::int64_t kMaxPairs = 512;
  return std::clamp(std::min(tokens, kMaxPairs), std::min(tokens * per_token, kMinPairs),
                    kMaxPairs);
}

std::size_t experts_scratch_bytes(const ExpertsShape& shape) {
  const std::int64_t pairs = wave_pairs(shape.tokens, shape.per_token);
  return 2 * arena_bytes(DType::kI32, shape.experts + 1) +
         arena_bytes(DType::kI64, shape.tokens * shape.per_token) +
         2 * arena_bytes(DType::kF32, pairs * shape.hidden) +
         arena_bytes(DType::kF32, 2 * pairs * shape.intermediate) + 64;
}

void experts(ExecContext& ctx, const ExpertsArgs& args) {
  if (args.x.rows() == 0 || args.all.empty()) return;
  ArenaScope scope(*ctx.scratch);
  ExpertsRun(ctx, args).run();
}

}  // namespace bl::cpu
