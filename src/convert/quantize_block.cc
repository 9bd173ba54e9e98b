#include "convert/quantize_block.h"

#include <algorithm>

#include "base/check.h"
#include "convert/correction_guard.h"
#include "convert/expert_pass.h"
#include "convert/input_statistics.h"
#include "convert/packed_tensors.h"
#include "convert/substitute.h"

namespace bl {
namespace {

// Returns the wanted x · W for one output of a call that has just run on the original path.
// `stream`: the residual stream of the quantized path, where the call adds to it.
Tensor wanted_output(Products& products, const MatmulArgs& args, const TensorView* stream) {
  const MatmulOutput& output = args.outputs[0];
  Tensor y = products.matrix(output.out.shape);
  products.ops().wanted_output({.y = y.view(),
                                .out = output.out,
                                .stream = stream != nullptr ? *stream : TensorView(),
                                .bias = output.bias,
                                .multiplier = args.epilogue.multiplier});
  return y;
}

struct Wanted {
  Tensor weights;  // F32 [in, padded out] in slot order
  Tensor product;  // H times them
  double power = 0.0;
};

// The original weights.
Wanted wanted_weights(Products& products, const LinearSite& linear, const OrderedHessian& hessian) {
  Wanted wanted;
  wanted.weights = in_slot_order(products, linear.weight, hessian.perm, linear.padded_out());
  const TensorView& w = wanted.weights.view();
  wanted.product = products.product(hessian.h.view(), w);
  wanted.power = products.ops().dot(w, wanted.product.view(), {});
  return wanted;
}

// H⁻¹ · (C − H · W), what is added to the original weights for the minimum of
// Σ ‖x · Ŵ − y‖² + λ ‖Ŵ − W‖². `cross`: C, F32 [in, out] in channel order. Changes wanted.product.
Tensor correction_of(Products& products, const OrderedHessian& hessian, const TensorView& cross,
                     Wanted& wanted) {
  products.ops().correction_target({.product = wanted.product.view(),
                                    .cross = cross,
                                    .weights = wanted.weights.view(),
                                    .perm = hessian.perm,
                                    .tokens = static_cast<float>(hessian.tokens),
                                    .damping = static_cast<float>(hessian.damping)});
  Tensor half;
  {
    const Tensor u = products.transposed(hessian.u_transposed.view());
    half = products.product(u.view(), wanted.product.view());
  }
  return products.product(hessian.u_transposed.view(), half.view());
}

// What one call reads, of the rows that weights are fitted to and of those that are held out.
struct CallStatistics {
  InputStatistics fitted;
  InputStatistics held_out;
};

class BlockQuantizer {
 public:
  BlockQuantizer(ModelPart& block, Backend& backend, TwoPaths& paths, const LinearRounder& rounder,
                 const QuantizeOptions& options)
      : block_(block),
        products_(backend),
        paths_(paths),
        rounder_(rounder),
        options_(options),
        substitutes_(backend),
        original_inputs_(paths.chunks.size()),
        quantized_inputs_(paths.chunks.size()) {}

  std::vector<QuantizedLinear> run() {
    std::vector<QuantizedLinear> results;
    for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
      advance({i, false, -1}, {});
      advance({i, true, -1}, {});
    }
    for (int call = 0; !original_inputs_.front().x.empty(); ++call) {
      if (original_inputs_.front().routed) {
        quantize_experts(results);
        for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
          advance({i, false, call}, {});
        }
      } else {
        quantize_readers(compare_paths(call), results);
      }
      for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
        advance({i, true, call}, {});
      }
    }
    return results;
  }

 private:
  // A chunk on one of the paths, and the call that it has reached; −1: it is before the block.
  struct Place {
    std::size_t chunk = 0;
    bool quantized = false;
    int call = -1;
  };
  // Hears a call that was computed, and the residual stream of its path.
  using After = std::function<void(const MatmulArgs&, const TensorView& stream)>;

  // Runs one chunk from `place` with its input up to the next call, whose input replaces the old
  // one. The input becomes empty where the block ends.
  void advance(const Place& place, const After& after) {
    CallInput& input = (place.quantized ? quantized_inputs_ : original_inputs_)[place.chunk];
    const Tensor x = input.x.empty() ? Tensor() : products_.fetch(input.x);
    CallInput next;
    CallPlan plan;
    plan.resume = place.call;
    plan.input = &input;
    plan.x = x.view();
    plan.stop = place.call + 1;
    plan.before = [&](int at, const MatmulArgs& args) {
      if (at == plan.stop) next = CallInput(products_, args);
    };
    plan.before_experts = [&](int at, const ExpertsArgs& args) {
      if (at == plan.stop) next = CallInput(products_, args);
    };
    if (place.quantized) plan.substitutes = substitutes_.map();
    const auto& states = place.quantized ? paths_.quantized : paths_.original;
    products_.update(states[place.chunk], [&](const TensorView& stream) {
      if (after) plan.after = [&](int, const MatmulArgs& args) { after(args, stream); };
      block_.run_block(paths_.chunks[place.chunk], stream, plan);
    });
    input = std::move(next);
  }

  // Runs `call` on the original path, which yields the wanted outputs, and adds up the statistics.
  CallStatistics compare_paths(int call) {
    CallStatistics inputs;
    for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
      readers_.clear();
      InputStatistics& sums = i < paths_.held_out ? inputs.held_out : inputs.fitted;
      advance({i, false, call}, [&](const MatmulArgs& args, const TensorView& stream) {
        compare_call(i, args, args.outputs[0].out.data == stream.data, sums);
      });
    }
    return inputs;
  }

  // Adds what a call of the original path on a chunk says, beside the input of the quantized one.
  // `streams`: whether the call adds to the residual stream.
  void compare_call(std::size_t chunk, const MatmulArgs& args, bool streams,
                    InputStatistics& sums) {
    for (const MatmulOutput& output : args.outputs) {
      const LinearSite* linear = block_.linear_of(output.weight);
      if (linear != nullptr) readers_.push_back(linear);
    }
    if (readers_.empty()) return;
    BL_CHECK(streams == args.epilogue.accumulate);
    const Tensor x = products_.fetch(quantized_inputs_[chunk].x);
    if (!streams && (readers_.size() > 1 || readers_[0]->out() >= readers_[0]->in())) {
      return sums.add(products_, x.view(), args.x, {});
    }
    BL_CHECK(readers_.size() == 1);
    const Tensor own = streams ? products_.fetch(paths_.quantized[chunk]) : Tensor();
    const Tensor wanted = wanted_output(products_, args, streams ? &own.view() : nullptr);
    sums.add(products_, x.view(), {}, wanted.view());
  }

  // Σ xᵀy of a linear with its wanted output y.
  Tensor cross_of(InputStatistics& inputs, const LinearSite& linear) {
    if (!inputs.cross.empty()) return std::move(inputs.cross);
    Tensor cross = products_.zeros(linear.in(), linear.out());
    const Tensor weight = products_.ops().load_weights(linear.weight);
    products_.add(cross.view(), inputs.mixed.view(), weight.view());
    return cross;
  }

  // The linears that read one input.
  void quantize_readers(CallStatistics inputs, std::vector<QuantizedLinear>& results) {
    if (readers_.empty()) return;
    const TensorView& sum = inputs.fitted.hessian.view();
    const OrderedHessian hessian = order_hessian(products_, sum, inputs.fitted.tokens,
                                                 options_.damping, rounder_.slot_order(sum.rows()));
    inputs.fitted.hessian = {};  // which is large
    for (const LinearSite* linear : readers_) {
      Wanted wanted = wanted_weights(products_, *linear, hessian);
      const double kept = correct(*linear, hessian, inputs, wanted);
      results.push_back(quantize(*linear, hessian, std::move(wanted)));
      results.back().kept_correction = kept;
    }
  }

  // Moves the wanted weights toward the wanted outputs. Returns the share of the correction that
  // the rows held out allow.
  double correct(const LinearSite& linear, const OrderedHessian& hessian, CallStatistics& inputs,
                 Wanted& wanted) {
    if (options_.correction == 0.0) return 1.0;
    const Tensor change =
        correction_of(products_, hessian, cross_of(inputs.fitted, linear).view(), wanted);
    const Tensor held_out_cross = cross_of(inputs.held_out, linear);
    const CorrectionGuard guard{products_, hessian.perm, inputs.held_out.hessian.view(),
                                held_out_cross.view()};
    const double kept = guard.kept_share(wanted.weights.view(), change.view(), options_.correction);
    products_.ops().add_scaled(wanted.weights.view(), change.view(),
                               static_cast<float>(options_.correction * kept));
    return kept;
  }

  // Experts have no wanted outputs of the original path: there, other tokens may have chosen them.
  void quantize_experts(std::vector<QuantizedLinear>& results) {
    const auto fitted = std::span(quantized_inputs_).subspan(paths_.held_out);
    ExpertPassArgs args{block_, products_, fitted, options_.damping};
    args.slot_order = [&](std::int64_t in) { return rounder_.slot_order(in); };
    for_each_expert(args, [&](const LinearSite& linear, const OrderedHessian& hessian) {
      results.push_back(quantize(linear, hessian, wanted_weights(products_, linear, hessian)));
      return substitutes_.map()->at(linear.packed);
    });
  }

  QuantizedLinear quantize(const LinearSite& linear, const OrderedHessian& hessian, Wanted wanted) {
    wanted.product = {};  // which is large, and not needed any more
    LinearRounder::Result rounded =
        rounder_.round(products_, linear.key, hessian, wanted.weights.view());
    substitutes_.add(linear, weight_matrix(linear.key, rounded.matrix));
    return {linear.key, std::move(rounded.matrix), linear.out(), rounded.error, wanted.power};
  }

  ModelPart& block_;
  Products products_;
  TwoPaths& paths_;
  const LinearRounder& rounder_;
  const QuantizeOptions& options_;
  Substitutes substitutes_;
  std::vector<CallInput> original_inputs_, quantized_inputs_;  // of the next call, per chunk
  std::vector<const LinearSite*> readers_;                     // of the call that was compared last
};

}  // namespace

std::vector<QuantizedLinear> quantize_block(ModelPart& block, Backend& backend, TwoPaths& paths,
                                            const LinearRounder& rounder,
                                            const QuantizeOptions& options) {
  return BlockQuantizer(block, backend, paths, rounder, options).run();
}

void replay_block(ModelPart& block, Backend& backend, TwoPaths& paths,
                  const std::map<std::string, WeightMatrix>& matrices) {
  Products products(backend);
  Substitutes substitutes(backend);
  for (const LinearSite& linear : block.linears()) substitutes.add(linear, matrices.at(linear.key));
  CallPlan plan;
  plan.substitutes = substitutes.map();
  for (std::size_t i = 0; i < paths.chunks.size(); ++i) {
    products.update(paths.original[i],
                    [&](const TensorView& x) { block.run_block(paths.chunks[i], x, {}); });
    products.update(paths.quantized[i],
                    [&](const TensorView& x) { block.run_block(paths.chunks[i], x, plan); });
  }
}

QuantizedLinear quantize_head(ModelPart& ends, Backend& backend, TwoPaths& paths,
                              const GroupList& groups, const QuantizeOptions& options) {
  Products products(backend);
  InputStatistics inputs;
  CallPlan plan;
  plan.stop = 0;
  plan.before = [&](int, const MatmulArgs& args) { inputs.add(products, args.x); };
  for (std::size_t i = paths.held_out; i < paths.chunks.size(); ++i) {
    const Tensor x = products.fetch(paths.quantized[i]);
    ends.run_head(paths.chunks[i], x.view(), plan, [](std::int64_t, const TensorView&) {});
  }
  const LinearSite& head = ends.linears().front();
  const OrderedHessian hessian =
      order_hessian(products, inputs.hessian.view(), inputs.tokens, options.damping);
  Wanted wanted = wanted_weights(products, head, hessian);
  wanted.product = {};  // as large as the head
  Rounding::Result rounded =
      Rounding(products, hessian, wanted.weights.view()).run(groups, options.sweeps);
  return {head.key, std::move(rounded.matrix), head.out(), rounded.error, wanted.power};
}

}  // namespace bl
