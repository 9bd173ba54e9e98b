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

// Adds factor · from to `to`, both F32 of one shape and contiguous.
void add_scaled(const TensorView& to, const TensorView& from, float factor) {
  float* sum = to.as<float>();
  const float* values = from.as<float>();
  const std::int64_t n = to.shape.elements();
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * values[i];
}

// Returns the wanted x · W for one output of a call that has just run on the original path.
// `stream`: the residual stream of the quantized path, where the call adds to it.
Tensor wanted_output(Products& products, const MatmulArgs& args, const TensorView* stream) {
  const MatmulOutput& output = args.outputs[0];
  const std::int64_t columns = output.out.columns();
  Tensor y = make_host_tensor(DType::kF32, {output.out.rows(), columns});
  const float inverse = 1.0f / args.epilogue.multiplier;
  const float* bias = output.bias.empty() ? nullptr : output.bias.as<float>();
  products.parallel(y.view().rows(), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = output.out.row<const float>(r);
      const float* less = stream != nullptr ? stream->row<const float>(r) : nullptr;
      float* to = y.view().row<float>(r);
      for (std::int64_t c = 0; c < columns; ++c) {
        float value = from[c];
        if (less != nullptr) value -= less[c];
        if (bias != nullptr) value -= bias[c];
        to[c] = value * inverse;
      }
    }
  });
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
  wanted.product = zero_matrix(w.rows(), w.columns());
  products.add(wanted.product.view(), hessian.h.view(), transposed(products, w).view());
  for (std::int64_t k = 0; k < w.rows(); ++k) {
    for (std::int64_t c = 0; c < w.columns(); ++c) {
      wanted.power +=
          static_cast<double>(w.row<float>(k)[c]) * wanted.product.view().row<float>(k)[c];
    }
  }
  return wanted;
}

// H⁻¹ · (C − H · W), what is added to the original weights for the minimum of
// Σ ‖x · Ŵ − y‖² + λ ‖Ŵ − W‖². `cross`: C, F32 [in, out] in channel order. Changes wanted.product.
Tensor correction_of(Products& products, const LinearSite& linear, const OrderedHessian& hessian,
                     const TensorView& cross, Wanted& wanted) {
  const TensorView& w = wanted.weights.view();
  const TensorView& product = wanted.product.view();
  const auto tokens = static_cast<float>(hessian.tokens);
  const auto damping = static_cast<float>(hessian.damping);
  for (std::int64_t k = 0; k < w.rows(); ++k) {
    float* to = product.row<float>(k);
    const float* c = cross.row<const float>(hessian.perm[static_cast<std::size_t>(k)]);
    const float* own = w.row<const float>(k);
    for (std::int64_t i = 0; i < linear.out(); ++i) {
      to[i] = c[i] / tokens - to[i] + damping * own[i];
    }
  }
  const Tensor u = transposed(products, hessian.u_transposed.view());
  Tensor half = zero_matrix(w.rows(), w.columns());
  products.add(half.view(), u.view(), transposed(products, product).view());
  Tensor change = zero_matrix(w.rows(), w.columns());
  products.add(change.view(), hessian.u_transposed.view(),
               transposed(products, half.view()).view());
  return change;
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
      advance(i, paths_.original[i], original_inputs_[i], -1, {});
      advance(i, paths_.quantized[i], quantized_inputs_[i], -1, {});
    }
    for (int call = 0; !original_inputs_.front().x.empty(); ++call) {
      if (original_inputs_.front().routed) {
        quantize_experts(results);
        for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
          advance(i, paths_.original[i], original_inputs_[i], call, {});
        }
      } else {
        quantize_readers(compare_paths(call), results);
      }
      for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
        advance(i, paths_.quantized[i], quantized_inputs_[i], call, {});
      }
    }
    return results;
  }

 private:
  using After = std::function<void(int, const MatmulArgs&)>;

  // Runs one chunk from `call` with its input (−1: from the beginning) up to the next call, whose
  // input replaces the old one. The input becomes empty where the block ends.
  void advance(std::size_t chunk, const Tensor& x, CallInput& input, int call, const After& after) {
    CallInput next;
    CallPlan plan;
    plan.resume = call;
    plan.input = &input;
    plan.stop = call + 1;
    plan.before = [&](int at, const MatmulArgs& args) {
      if (at == call + 1) next = CallInput(args);
    };
    plan.before_experts = [&](int at, const ExpertsArgs& args) {
      if (at == call + 1) next = CallInput(args);
    };
    plan.after = after;
    if (&x == &paths_.quantized[chunk]) plan.substitutes = substitutes_.map();
    block_.run_block(paths_.chunks[chunk], x.view(), plan);
    input = std::move(next);
  }

  // Runs `call` on the original path, which yields the wanted outputs, and adds up the statistics.
  CallStatistics compare_paths(int call) {
    CallStatistics inputs;
    for (std::size_t i = 0; i < paths_.chunks.size(); ++i) {
      InputStatistics& sums = i < paths_.held_out ? inputs.held_out : inputs.fitted;
      advance(i, paths_.original[i], original_inputs_[i], call,
              [&](int, const MatmulArgs& args) { compare_call(i, args, sums); });
    }
    return inputs;
  }

  // Adds what a call of the original path on a chunk says, beside the input of the quantized one.
  void compare_call(std::size_t chunk, const MatmulArgs& args, InputStatistics& sums) {
    readers_ = block_.readers_of(args);
    std::erase_if(readers_, [&](const LinearSite* linear) { return !rounder_.takes(linear->key); });
    if (readers_.empty()) return;
    const bool streams = args.outputs[0].out.data == paths_.original[chunk].view().data;
    BL_CHECK(streams == args.epilogue.accumulate);
    const TensorView& x = quantized_inputs_[chunk].x.view();
    if (!streams && (readers_.size() > 1 || readers_[0]->out() >= readers_[0]->in())) {
      return sums.add(products_, x, args.x, {});
    }
    BL_CHECK(readers_.size() == 1);
    const TensorView* stream = streams ? &paths_.quantized[chunk].view() : nullptr;
    sums.add(products_, x, {}, wanted_output(products_, args, stream).view());
  }

  // Σ xᵀy of a linear with its wanted output y.
  Tensor cross_of(InputStatistics& inputs, const LinearSite& linear) {
    if (!inputs.cross.empty()) return std::move(inputs.cross);
    Tensor cross = zero_matrix(linear.in(), linear.out());
    products_.add(cross.view(), inputs.mixed.view(), linear.weight);
    return cross;
  }

  // The linears that read one input.
  void quantize_readers(CallStatistics inputs, std::vector<QuantizedLinear>& results) {
    if (readers_.empty()) return;
    const TensorView& sum = inputs.fitted.hessian.view();
    const OrderedHessian hessian = order_hessian(products_, sum, inputs.fitted.tokens,
                                                 options_.damping, rounder_.slot_order(sum.rows()));
    for (const LinearSite* linear : readers_) {
      Wanted wanted = wanted_weights(products_, *linear, hessian);
      const double kept = correct(*linear, hessian, inputs, wanted);
      results.push_back(quantize(*linear, hessian, wanted));
      results.back().kept_correction = kept;
    }
  }

  // Moves the wanted weights toward the wanted outputs. Returns the share of the correction that
  // the rows held out allow.
  double correct(const LinearSite& linear, const OrderedHessian& hessian, CallStatistics& inputs,
                 Wanted& wanted) {
    if (options_.correction == 0.0) return 1.0;
    const Tensor change =
        correction_of(products_, linear, hessian, cross_of(inputs.fitted, linear).view(), wanted);
    const Tensor held_out_cross = cross_of(inputs.held_out, linear);
    const CorrectionGuard guard{products_, hessian.perm, inputs.held_out.hessian.view(),
                                held_out_cross.view()};
    const double kept = guard.kept_share(wanted.weights.view(), change.view(), options_.correction);
    add_scaled(wanted.weights.view(), change.view(),
               static_cast<float>(options_.correction * kept));
    return kept;
  }

  // Experts have no wanted outputs of the original path: there, other tokens may have chosen them.
  void quantize_experts(std::vector<QuantizedLinear>& results) {
    const auto fitted = std::span(quantized_inputs_).subspan(paths_.held_out);
    ExpertPassArgs args{block_, products_, fitted, options_.damping};
    args.slot_order = [&](std::int64_t in) { return rounder_.slot_order(in); };
    const auto round = [&](const LinearSite& linear, const OrderedHessian& hessian) {
      if (!rounder_.takes(linear.key)) return linear.packed;
      results.push_back(quantize(linear, hessian, wanted_weights(products_, linear, hessian)));
      return substitutes_.map()->at(linear.packed);
    };
    paths_.unreached_experts += for_each_expert(args, round);
  }

  QuantizedLinear quantize(const LinearSite& linear, const OrderedHessian& hessian,
                           const Wanted& wanted) {
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
  Substitutes substitutes(backend);
  for (const LinearSite& linear : block.linears()) {
    const auto matrix = matrices.find(linear.key);
    if (matrix != matrices.end()) substitutes.add(linear, matrix->second);
  }
  CallPlan plan;
  plan.substitutes = substitutes.map();
  for (std::size_t i = 0; i < paths.chunks.size(); ++i) {
    block.run_block(paths.chunks[i], paths.original[i].view(), {});
    block.run_block(paths.chunks[i], paths.quantized[i].view(), plan);
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
    ends.run_head(paths.chunks[i], paths.quantized[i].view(), plan,
                  [](std::int64_t, const TensorView&) {});
  }
  const LinearSite& head = ends.linears().front();
  const OrderedHessian hessian =
      order_hessian(products, inputs.hessian.view(), inputs.tokens, options.damping);
  const Wanted wanted = wanted_weights(products, head, hessian);
  Rounding::Result rounded =
      Rounding(products, hessian, wanted.weights.view()).run(groups, options.sweeps);
  return {head.key, std::move(rounded.matrix), head.out(), rounded.error, wanted.power};
}

}  // namespace bl
