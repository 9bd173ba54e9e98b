#include "nn/adapted_experts.h"

#include <algorithm>
#include <array>
#include <vector>

#include "nn/device_copy.h"

namespace bl {
namespace {

// Rows that one expert processes at once. The memory plan includes the scratch for them; as long as
// they are few, it is less than what attention needs anyway.
constexpr std::int64_t kRowsAtOnce = 64;

// One row that is routed to one expert.
struct Choice {
  std::int32_t expert = 0;
  std::int32_t row = 0;
  float weight = 0;
  const AdapterMix* mix = nullptr;
};

template <class T>
std::vector<T> on_host(Backend& backend, const T* values, const Shape& shape) {
  std::vector<T> host(static_cast<std::size_t>(shape.elements()));
  backend.download(host_view(std::span<const T>(host), shape),
                   view_of(const_cast<T*>(values), dtype_of<T>(), shape));
  return host;
}

// Returns the choices of all rows in `rows`, sorted by expert, then by row.
std::vector<Choice> choices_of(Backend& backend, const ExpertsArgs& args,
                               const StepAdapters& rows) {
  const Shape shape{args.x.rows(), args.k};
  const std::vector<std::int32_t> experts = on_host(backend, args.experts, shape);
  const std::vector<float> weights = on_host(backend, args.weights.as<const float>(), shape);
  std::vector<Choice> choices;
  for (const AdapterRows& run : rows.runs) {
    for (std::int64_t row = run.first; row < run.first + run.rows; ++row) {
      for (std::int64_t at = row * args.k; at < (row + 1) * args.k; ++at) {
        const auto i = static_cast<std::size_t>(at);
        // If logits are NaN, routing may choose no valid expert.
        if (experts[i] < 0 || experts[i] >= std::ssize(args.all)) continue;
        choices.push_back({experts[i], static_cast<std::int32_t>(row), weights[i], run.mix});
      }
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
  return choices;
}

class AdaptedExperts {
 public:
  AdaptedExperts(ExecContext& ctx, Backend& backend, std::span<const Moe::Expert> experts,
                 const ExpertsArgs& args, const StepAdapters& rows)
      : ctx_(ctx), experts_(experts), args_(args), choices_(choices_of(backend, args, rows)) {
    if (choices_.empty()) return;
    std::vector<std::int32_t> numbers;
    std::vector<float> weights;
    for (const Choice& choice : choices_) {
      numbers.push_back(choice.row);
      weights.push_back(args.weights_on_input ? 1.0f : choice.weight);
    }
    const Shape shape{std::ssize(choices_)};
    rows_ = scratch_copy(ctx, backend, std::span<const std::int32_t>(numbers), shape)
                .as<const std::int32_t>();
    weights_ = scratch_copy(ctx, backend, std::span<const float>(weights), shape).as<const float>();
  }

  void run() {
    for (std::size_t first = 0; first < choices_.size();) {
      const std::size_t count = piece_from(first);
      run_piece(first, count);
      first += count;
    }
  }

 private:
  // Returns how many choices from `first` on have the same expert and different rows. Logits of NaN
  // may choose an expert twice.
  std::size_t piece_from(std::size_t first) const {
    std::size_t end = first + 1;
    while (end < choices_.size() && end - first < static_cast<std::size_t>(kRowsAtOnce) &&
           choices_[end].expert == choices_[first].expert &&
           choices_[end].row != choices_[end - 1].row) {
      ++end;
    }
    return end - first;
  }

  void run_piece(std::size_t first, std::size_t count) {
    const std::span<const Choice> choices(&choices_[first], count);
    StepAdapters mixes;
    for (const Choice& choice : choices) mixes.append(choice.mix, 1);
    ExecContext own = ctx_;
    own.adapters = &mixes;
    ArenaScope scope(*own.scratch);
    const TensorView x = own.scratch->take_f32({std::ssize(choices), args_.x.columns()});
    own.ops->copy_rows(
        own, {.x = args_.x, .rows = rows_ + first, .count = std::ssize(choices), .out = x});
    if (args_.weights_on_input) multiply_rows(own, x, choices);
    apply_expert(own, experts_[static_cast<std::size_t>(choices[0].expert)], x);
    own.ops->add_rows(own,
                      {.x = args_.out, .rows = rows_ + first, .weights = weights_ + first, .y = x});
  }

  // One launch per row. Weights on inputs are rare, and several choices in one piece are rarer
  // still.
  static void multiply_rows(ExecContext& ctx, const TensorView& x,
                            std::span<const Choice> choices) {
    for (std::int64_t i = 0; i < x.rows(); ++i) {
      const float weight = choices[static_cast<std::size_t>(i)].weight;
      ctx.ops->scale(ctx, {.x = slice_rows(x, i, 1), .multiplier = weight});
    }
  }

  // x = down(act(gate(x)) · up(x))
  void apply_expert(ExecContext& ctx, const Moe::Expert& expert, const TensorView& x) const {
    const std::int64_t width = args_.intermediate;
    const bool apart = !expert.gate.empty();
    const bool gated = apart || args_.fused_gate_up;
    const TensorView inner = ctx.scratch->take_f32({x.rows(), gated ? 2 * width : width});
    ActivateArgs activation = args_.activation;
    activation.gate = slice_columns(inner, 0, width);
    activation.up = gated ? slice_columns(inner, width, width) : TensorView{};
    activation.out = activation.gate;
    if (apart) {
      const std::array<LinearOutput, 2> outputs{
          {{&expert.gate, activation.gate}, {&expert.up, activation.up}}};
      apply_gated_linears(ctx, x, outputs, activation);
    } else {
      const LinearOutput output{&expert.up, inner};
      apply_linears(ctx, x, {&output, 1});
      ctx.ops->activate(ctx, activation);
    }
    const LinearOutput output{&expert.down, x};
    apply_linears(ctx, activation.out, {&output, 1});
  }

  ExecContext& ctx_;
  std::span<const Moe::Expert> experts_;
  const ExpertsArgs& args_;
  std::vector<Choice> choices_;
  const std::int32_t* rows_ = nullptr;  // rows of choices_, in the backend's memory
  const float* weights_ = nullptr;
};

}  // namespace

void run_adapted_experts(ExecContext& ctx, Backend& backend, std::span<const Moe::Expert> experts,
                         const ExpertsArgs& args, const StepAdapters& rows) {
  ArenaScope scope(*ctx.scratch);
  AdaptedExperts(ctx, backend, experts, args, rows).run();
}

std::size_t adapted_experts_bytes(const MoeSpec& spec, std::int64_t tokens) {
  const std::int64_t rows = std::min(tokens, kRowsAtOnce);
  const std::int64_t width = spec.expert.intermediate * (spec.expert.gated ? 2 : 1);
  return 2 * arena_bytes(DType::kF32, tokens * spec.per_token) +
         arena_bytes(DType::kF32, rows * spec.hidden) + arena_bytes(DType::kF32, rows * width);
}

}  // namespace bl
