#include "convert/expert_pass.h"

#include <algorithm>
#include <functional>
#include <span>

#include "base/check.h"
#include "base/log.h"

namespace bl {
namespace {

// An expert with fewer tokens gets others, up to this number. They count this much beside a token
// that the average expert was chosen for.
constexpr std::int64_t kFewTokens = 128;
constexpr float kWeightOfOthers = 0.1f;

struct ExpertRow {
  std::size_t chunk = 0;
  std::int64_t token = 0;
  float weight = 0.0f;  // of routing
};

class ExpertPass {
 public:
  ExpertPass(const ExpertPassArgs& args, const RoundExpert& round)
      : args_(args), round_(round), routed_(*args.inputs.front().routed) {
    for (const CallInput& input : args.inputs) {
      tokens_ += input.x.view().rows();
      piece_ = std::max(piece_, static_cast<std::size_t>(input.x.view().rows()));
    }
    collect_rows();
  }

  int run() {
    int unreached = 0;
    for (std::size_t expert = 0; expert < rows_.size(); ++expert) {
      unreached += rows_[expert].empty() ? 1 : 0;
      add_others(rows_[expert], expert);
      run_expert(routed_.all[expert], rows_[expert]);
    }
    return unreached;
  }

 private:
  void collect_rows() {
    rows_.resize(routed_.all.size());
    for (std::size_t chunk = 0; chunk < args_.inputs.size(); ++chunk) {
      const CallInput& input = args_.inputs[chunk];
      const ExpertsArgs& routed = *input.routed;
      for (std::int64_t token = 0; token < input.x.view().rows(); ++token) {
        for (int j = 0; j < routed.k; ++j) {
          const auto at = static_cast<std::size_t>(token * routed.k + j);
          const auto expert = static_cast<std::size_t>(input.experts[at]);
          BL_CHECK(expert < rows_.size());
          rows_[expert].push_back({chunk, token, input.weights.view().row<const float>(token)[j]});
        }
      }
    }
  }

  // Tokens at equal distances; which ones differs from expert to expert.
  void add_others(std::vector<ExpertRow>& rows, std::size_t expert) const {
    const std::int64_t missing = std::min(kFewTokens, tokens_) - std::ssize(rows);
    for (std::int64_t i = 0; i < missing; ++i) {
      std::int64_t token = (i * tokens_ / missing + static_cast<std::int64_t>(expert)) % tokens_;
      std::size_t chunk = 0;
      while (token >= args_.inputs[chunk].x.view().rows()) {
        token -= args_.inputs[chunk++].x.view().rows();
      }
      rows.push_back({chunk, token, kWeightOfOthers / static_cast<float>(routed_.k)});
    }
  }

  void run_expert(const ExpertWeights& expert, const std::vector<ExpertRow>& rows) {
    const OrderedHessian hessian =
        hessian_of(rows, args_.inputs.front().x.view().columns(), [](Tensor x) { return x; });
    const PackedMatrix* gate = expert.gate != nullptr ? rounded(*expert.gate, hessian) : nullptr;
    const PackedMatrix* up = rounded(*expert.up, hessian);
    rounded(*expert.down, hessian_of(rows, routed_.intermediate, [&](const Tensor& x) {
      return hidden_of(expert, gate, up, x.view());
    }));
  }

  const PackedMatrix* rounded(const PackedMatrix& matrix, const OrderedHessian& hessian) {
    const LinearSite* linear = args_.block.linear_of(&matrix);
    return linear != nullptr ? round_(*linear, hessian) : &matrix;
  }

  // The inputs of one expert, F32 [rows, in].
  Tensor gathered(std::span<const ExpertRow> rows) const {
    std::vector<TensorView> places;
    for (const ExpertRow& row : rows) {
      places.push_back(slice_rows(args_.inputs[row.chunk].x.view(), row.token, 1));
    }
    Tensor x = args_.products.gathered(places);
    if (routed_.weights_on_input) args_.products.ops().scale_rows(x.view(), weights_of(rows));
    return x;
  }

  static std::vector<float> weights_of(std::span<const ExpertRow> rows) {
    std::vector<float> weights;
    for (const ExpertRow& row : rows) weights.push_back(row.weight);
    return weights;
  }

  // The Hessian of what `input` makes of an expert's inputs, F32 [rows, columns]. They pass in
  // pieces no longer than the longest row of calibration, for which a card has room
  // (device_plan.h); one expert may get nearly all tokens.
  OrderedHessian hessian_of(std::span<const ExpertRow> rows, std::int64_t columns,
                            const std::function<Tensor(Tensor)>& input) const {
    const Tensor sum = args_.products.zeros(columns, columns);
    for (std::size_t first = 0; first < rows.size(); first += piece_) {
      const auto piece = rows.subspan(first, std::min(piece_, rows.size() - first));
      const Tensor x = input(gathered(piece));
      if (!routed_.weights_on_input) {
        args_.products.ops().scale_rows(x.view(), weights_of(piece));
      }
      args_.products.add_upper_gram(sum.view(), x.view());
    }
    return order_hessian(args_.products, sum.view(), tokens_, args_.damping,
                         args_.slot_order(columns));
  }

  // act(gate(x)) · up(x), F32 [rows, intermediate].
  Tensor hidden_of(const ExpertWeights& expert, const PackedMatrix* gate, const PackedMatrix* up,
                   const TensorView& x) const {
    const Shape shape{x.rows(), routed_.intermediate};
    Tensor first = args_.products.matrix(shape);
    const Tensor second = args_.products.matrix(shape);
    ActivateArgs activation = routed_.activation;
    activation.out = first.view();
    activation.gate = first.view();
    if (gate != nullptr) {
      args_.products.apply({gate, first.view(), expert.gate_bias}, x);
      args_.products.apply({up, second.view(), expert.up_bias}, x);
      activation.up = second.view();
    } else {
      args_.products.apply({up, first.view(), expert.up_bias}, x);
    }
    args_.products.activate(activation);
    return first;
  }

  const ExpertPassArgs& args_;
  const RoundExpert& round_;
  const ExpertsArgs& routed_;  // for what all chunks share
  std::int64_t tokens_ = 0;
  std::size_t piece_ = 1;                     // tokens of an expert that are gathered at a time
  std::vector<std::vector<ExpertRow>> rows_;  // per expert
};

}  // namespace

int for_each_expert(const ExpertPassArgs& args, const RoundExpert& round) {
  return ExpertPass(args, round).run();
}

void warn_of_unreached(int experts) {
  if (experts == 0) return;
  log_warning(
      "{} experts were chosen by no calibration token; their widths and roundings follow other "
      "tokens of their layers (more or other calibration text reaches more experts)",
      experts);
}

}  // namespace bl
