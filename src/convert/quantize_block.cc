#include "convert/quantize_block.h"

#include <algorithm>

#include "base/check.h"
#include "convert/conversion_source.h"
#include "convert/correction_guard.h"
#include "convert/expert_pass.h"
#include "convert/input_statistics.h"
#include "convert/staged_path.h"
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
        original_(block, products_, paths.chunks, paths.original),
        quantized_(block, products_, paths.chunks, paths.quantized, substitutes_.map()) {}

  std::vector<QuantizedLinear> run() {
    std::vector<QuantizedLinear> results;
    advance(original_);
    advance(quantized_);
    while (!original_.inputs().front().x.empty()) {
      if (original_.inputs().front().routed) {
        quantize_experts(results);
        advance(original_);
      } else {
        quantize_readers(compare_paths(), results);
      }
      advance(quantized_);
    }
    return results;
  }

 private:
  void advance(StagedPath& path) {
    for (std::size_t i = 0; i < paths_.chunks.size(); ++i) path.advance(i);
  }

  // Runs the next call on the original path, which yields the wanted outputs, and adds up the
  // statistics.
  CallStatistics compare_paths() {
    CallStatistics inputs;
    for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
      InputStatistics& sums = i < paths_.held_out ? inputs.held_out : inputs.fitted;
      original_.advance(i, [&](const MatmulArgs& args, const TensorView& stream) {
        compare_call(i, args, args.outputs[0].out.data == stream.data, sums);
      });
    }
    return inputs;
  }

  // Adds what a call of the original path on a chunk says, beside the input of the quantized one.
  // `streams`: whether the call adds to the residual stream.
  void compare_call(std::size_t chunk, const MatmulArgs& args, bool streams,
                    InputStatistics& sums) {
    readers_ = block_.readers_of(args);
    std::erase_if(readers_, [&](const LinearSite* linear) { return !rounder_.takes(linear->key); });
    if (readers_.empty()) return;
    BL_CHECK(streams == args.epilogue.accumulate);
    const Tensor x = products_.fetch(quantized_.inputs()[chunk].x);
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
    const auto fitted = quantized_.inputs().subspan(paths_.held_out);
    ExpertPassArgs args{block_, products_, fitted, options_.damping};
    args.slot_order = [&](std::int64_t in) { return rounder_.slot_order(in); };
    const auto round = [&](const LinearSite& linear, const OrderedHessian& hessian) {
      if (!rounder_.takes(linear.key)) return linear.packed;
      results.push_back(quantize(linear, hessian, wanted_weights(products_, linear, hessian)));
      return substitutes_.map()->at(linear.packed);
    };
    paths_.unreached_experts += for_each_expert(args, round);
  }

  QuantizedLinear quantize(const LinearSite& linear, const OrderedHessian& hessian, Wanted wanted) {
    wanted.product = {};  // which is large, and not needed any more
    const LinearRounder::Result rounded =
        rounder_.round(products_, linear.key, hessian, wanted.weights.view());
    check_loss(linear.key, rounded.error + wanted.power);
    PackedLinear packed = packed_linear(linear.key, rounded.matrix, products_.threads());
    substitutes_.add(linear, weight_matrix(linear.key, packed));
    return {linear.key, std::move(packed), linear.out(), rounded.error, wanted.power};
  }

  ModelPart& block_;
  Products products_;
  TwoPaths& paths_;
  const LinearRounder& rounder_;
  const QuantizeOptions& options_;
  Substitutes substitutes_;
  StagedPath original_;
  StagedPath quantized_;
  std::vector<const LinearSite*> readers_;  // of the call that was compared last
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
  for (const LinearSite& linear : block.linears()) {
    const auto matrix = matrices.find(linear.key);
    if (matrix != matrices.end()) substitutes.add(linear, matrix->second);
  }
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
  check_loss(head.key, rounded.error + wanted.power);
  return {head.key, packed_linear(head.key, std::move(rounded.matrix), products.threads()),
          head.out(), rounded.error, wanted.power};
}

}  // namespace bl
