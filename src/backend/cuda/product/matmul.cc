#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/product/dense_product.h"
#include "backend/cuda/product/held_product.h"
#include "backend/cuda/product/many_rows.h"
#include "backend/cuda/product/product.h"
#include "backend/cuda/product/warpgroup_product.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Plain matrices of so many bytes are multiplied by cuBLASLt where dense_rows_matmul would read
// them more than once: output layers, mostly.
constexpr std::int64_t kLargeDenseBytes = 32 << 20;

TensorView take_halves(Arena& arena, std::int64_t count) {
  return arena.take(DType::kF16, {std::max<std::int64_t>(count, 1)});
}

// Makes the activations ready for one matrix, or finds the ones made for its equal.
class Preparation {
 public:
  // `at_once`: tokens of a launch; `bricks`: for warpgroups.
  Preparation(ExecContext& ctx, std::int64_t tokens, int at_once, bool bricks)
      : ctx_(ctx), tokens_(tokens) {
    args_.tile = at_once;
    args_.bricks = bricks;
  }

  const PrepareTarget& target_for(const CodeWeights& weights) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == std::pair{weights.gather, weights.view.units}) return args_.targets[i];
    }
    BL_CHECK(args_.count < kMaxMatrices);
    const std::int64_t rows = prepared_rows(tokens_);
    PrepareTarget& target = args_.targets[args_.count++];
    target.channel_of_slot = weights.channel_of_slot;
    target.units = weights.view.units;
    target.chunks = weights.view.chunks;
    target.chunk_count = weights.view.chunk_count;
    target.fragments =
        take_halves(*ctx_.scratch, rows * weights.view.units * kUnitSlots).as<std::uint32_t>();
    if (args_.sums) target.chunk_sums = ctx_.scratch->take_f32({rows, target.units}).as<float>();
    keys_.emplace_back(weights.gather, weights.view.units);
    return target;
  }

  // The products add activations up themselves.
  void leave_sums_out() { args_.sums = false; }

  // Counters that are to be zeros behind it.
  void clears(std::int32_t* counters, int count) {
    args_.zeros = counters;
    args_.zero_count = count;
  }

  const float* run(const TensorView& x, const InputNorm& norm) {
    args_.x = x;
    args_.token_scales = ctx_.scratch->take_f32({tokens_}).as<float>();
    args_.norm = norm;
    prepare(ctx_, args_);
    return args_.token_scales;
  }

 private:
  ExecContext& ctx_;
  std::int64_t tokens_;
  PrepareArgs args_;
  std::vector<std::pair<std::uint64_t, std::int32_t>> keys_;
};

InputNorm input_norm(const NormArgs* norm, std::int64_t in) {
  if (norm == nullptr) return {};
  return {true, norm->weight.empty() ? nullptr : norm->weight.as<const float>(),
          norm->unit_offset ? 1.0f : 0.0f, norm->eps, 1.0f / static_cast<float>(in)};
}

void add_matrix(ProductArgs& product_args, const MatmulOutput& output, const TensorView& out) {
  const CodeWeights& codes = *cuda_matrix(output.weight).codes();
  ProductMatrix& m = product_args.matrices[product_args.count++];
  m.view = codes.view;
  m.widths = codes.plan.widths();
  m.piece_bytes = static_cast<std::int32_t>(codes.max_piece_bytes);
  m.piece_scale_bytes = static_cast<std::int32_t>(codes.max_piece_scale_bytes);
  m.place_of_channel = codes.place_of_channel;
  m.out = out.as<float>();
  m.out_stride = out.row_stride;
  m.bias = bias_of(output);
}

// The number of a matrix's gather among those of the launch: that of an earlier equal one, or the
// next.
int gather_number(const ProductArgs& args, std::span<const CodeWeights* const> weights,
                  std::size_t matrix) {
  int next = 0;
  for (std::size_t i = 0; i < matrix; ++i) {
    if (weights[i]->gather == weights[matrix]->gather) return args.matrices[i].gather;
    next = std::max(next, args.matrices[i].gather + 1);
  }
  return next;
}

// Products with packed codes that one launch can make.
struct PackedProduct {
  ProductArgs args;
  std::array<const CodeWeights*, kMaxMatrices> weights{};

  StripShares shares(CudaBackend& backend, bool spare) const {
    return backend.product_plans().find({weights.data(), static_cast<std::size_t>(args.count)},
                                        args.gated, backend.facts().multiprocessors, spare);
  }
};

PackedProduct packed_product(const ExecContext& ctx, const MatmulArgs& args,
                             std::span<const MatmulOutput* const> outputs) {
  PackedProduct product;
  product.args.regardless_of_batch = ctx.deterministic;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    product.weights[i] = cuda_matrix(outputs[i]->weight).codes();
    add_matrix(product.args, *outputs[i],
               args.activation != nullptr ? args.activation->out : outputs[i]->out);
    product.args.matrices[i].gather = gather_number(product.args, product.weights, i);
  }
  product.args.x = args.x.as<const float>();
  product.args.x_stride = args.x.row_stride;
  product.args.in = static_cast<int>(args.x.columns());
  product.args.norm = input_norm(args.norm, args.x.columns());
  product.args.multiplier = args.multiplier;
  product.args.accumulate = args.accumulate;
  product.args.gated = args.activation != nullptr;
  if (product.args.gated) product.args.activation = activation_parameters(*args.activation);
  product.args.tokens = static_cast<int>(std::min<std::int64_t>(kMaxProductTokens, args.x.rows()));
  return product;
}

// How 2 to 16 tokens at a time are multiplied by held_product(), with the memory that it takes, if
// they are.
HeldWork held_work(ExecContext& ctx, const PackedProduct& packed, Preparation& preparation) {
  const auto count = static_cast<std::size_t>(packed.args.count);
  HeldWork work =
      plan_held_work(*cuda_ops_of(ctx).backend, packed.args, {packed.weights.data(), count});
  if (work.exists()) preparation.leave_sums_out();
  if (work.parts <= 1) return work;
  const std::int64_t strips = packed.args.matrices[0].view.strips;
  work.partials = ctx.scratch->take_f32({work.parts * strips, kHeldStripSums}).as<float>();
  work.done = ctx.scratch->take(DType::kI32, {work.shares.ctas}).as<std::int32_t>();
  preparation.clears(work.done, work.shares.ctas);
  return work;
}

// A few tokens: straight from the packed codes, all matrices in one launch.
void packed_matmul(ExecContext& ctx, const MatmulArgs& args,
                   std::span<const MatmulOutput* const> outputs) {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t tokens = args.x.rows();
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  PackedProduct packed = packed_product(ctx, args, outputs);
  const bool may_make_own = !ctx.deterministic && tokens < backend.launch_plan().prepared_from;
  StripShares shares = packed.shares(backend, may_make_own);
  if (may_make_own && makes_own_input(backend.facts(), packed.args, shares)) {
    token_product(ctx, packed.args, shares, {packed.weights.data(), outputs.size()});
    return;
  }
  if (tokens > 1) shares = packed.shares(backend, false);
  const int few = most_product_tokens(backend.facts());
  const int warpgroup_tokens = most_warpgroup_tokens(backend.facts());
  const LaunchPlan& plan = backend.launch_plan();
  const bool warpgroups =
      warpgroup_tokens > 0 && tokens >= plan.warpgroup_from && !ctx.deterministic;
  const int at_once = warpgroups ? warpgroup_tokens : few;
  Preparation preparation(ctx, tokens, at_once, warpgroups);
  const bool small = is_small_work(packed.args, backend.facts().multiprocessors);
  const std::int64_t ring_from = small ? plan.small_ring_from : plan.ring_from;
  const bool holds = !warpgroups && tokens > 1 && tokens < ring_from && !ctx.deterministic;
  HeldWork held = holds ? held_work(ctx, packed, preparation) : HeldWork{};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const PrepareTarget& target = preparation.target_for(*packed.weights[i]);
    packed.args.matrices[i].fragments = target.fragments;
    packed.args.matrices[i].chunk_sums = target.chunk_sums;
  }
  packed.args.token_scales = preparation.run(args.x, packed.args.norm);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    packed.args.first_token = first;
    packed.args.tokens = static_cast<int>(std::min<std::int64_t>(at_once, tokens - first));
    if (held.exists()) {
      held_product(ctx, packed.args, held);
      ++held.launches;
    } else {
      (warpgroups ? warpgroup_product : product)(ctx, packed.args, shares);
    }
  }
}

// A few tokens times a plain matrix. cuBLASLt rounds activations to binary16, which holds them well
// enough beside weights of that type, as it does beside packed codes.
void plain_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output) {
  const std::int64_t in = output.weight->in();
  const bool large = in * output.weight->out() * 2 >= kLargeDenseBytes;
  const std::int64_t library_from = cuda_ops_of(ctx).backend->launch_plan().library_from;
  if (args.x.rows() < library_from || ctx.deterministic || !large || in % 8 != 0 ||
      cuda_matrix(output.weight).dense()->type != DType::kF16) {
    dense_rows_matmul(ctx, args, output);
    return;
  }
  MatmulArgs one = args;
  one.outputs = {&output, 1};
  many_rows_matmul(ctx, one);
}

bool is_exl2(const MatmulOutput& output) {
  return cuda_matrix(output.weight).codes()->view.kind == ScaleKind::kExl2;
}

bool all_have_codes(const MatmulArgs& args) {
  return args.outputs.size() <= kMaxMatrices &&
         std::all_of(args.outputs.begin(), args.outputs.end(), has_codes);
}

// A few tokens: the norm goes into the launch that makes the activations ready where every matrix
// has codes; elsewhere it is a launch of its own.
bool fuses_norm(const MatmulArgs& args) {
  return args.norm->kind == NormKind::kRms && args.norm->bias.empty() && all_have_codes(args);
}

// And the activation into the product of gate and up.
bool fuses_activation(const MatmulArgs& args) {
  return all_have_codes(args) && is_exl2(args.outputs[0]) == is_exl2(args.outputs[1]);
}

void matmul_of_normalised(ExecContext& ctx, const MatmulArgs& args) {
  NormArgs norm_args = *args.norm;
  const TensorView h = ctx.scratch->take_f32({args.x.rows(), 1, args.x.columns()});
  norm_args.x = args.x;
  norm_args.x.shape = h.shape;
  norm_args.out = h;
  norm(ctx, norm_args);
  MatmulArgs rest = args;
  rest.x = h;
  rest.x.shape = {args.x.rows(), args.x.columns()};
  rest.norm = nullptr;
  matmul(ctx, rest);
}

// Where a row's bits must not depend on the others, all rows take the kernels for a few.
void matmul_in_slices(ExecContext& ctx, const MatmulArgs& args) {
  BL_CHECK(args.half_x == nullptr);
  std::array<MatmulOutput, kMaxMatrices> outputs;
  BL_CHECK(args.outputs.size() <= outputs.size());
  for (std::int64_t first = 0; first < args.x.rows(); first += kMostPackedTokens) {
    const std::int64_t count = std::min(kMostPackedTokens, args.x.rows() - first);
    MatmulArgs part = args;
    part.x = slice_rows(args.x, first, count);
    for (std::size_t i = 0; i < args.outputs.size(); ++i) {
      outputs[i] = args.outputs[i];
      outputs[i].out = slice_rows(outputs[i].out, first, count);
    }
    part.outputs = std::span(outputs.data(), args.outputs.size());
    part.activation = nullptr;
    matmul(ctx, part);
  }
}

}  // namespace

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  const std::int64_t tokens = (args.half_x != nullptr ? args.half_x->rows : args.x).rows();
  if (tokens == 0) return;
  if (ctx.deterministic && tokens > kMostPackedTokens) {
    matmul_in_slices(ctx, args);
    if (args.activation != nullptr) activate(ctx, *args.activation);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  if (args.activation != nullptr) BL_CHECK(args.outputs.size() == 2);
  const bool few =
      ctx.deterministic || tokens < cuda_ops_of(ctx).backend->launch_plan().expanded_from;
  if (args.norm != nullptr && !(few ? fuses_norm(args) : many_rows_normalise(args))) {
    matmul_of_normalised(ctx, args);
    return;
  }
  if (!few) {
    many_rows_matmul(ctx, args);
    return;
  }
  BL_CHECK(args.half_x == nullptr);
  if (args.activation != nullptr && (ctx.deterministic || !fuses_activation(args))) {
    MatmulArgs rest = args;
    rest.activation = nullptr;
    matmul(ctx, rest);
    activate(ctx, *args.activation);
    return;
  }
  for (const MatmulOutput& output : args.outputs) {
    if (!has_codes(output)) plain_matmul(ctx, args, output);
  }
  for (const bool exl2 : {true, false}) {
    std::array<const MatmulOutput*, kMaxMatrices> packed{};
    std::size_t count = 0;
    for (const MatmulOutput& output : args.outputs) {
      if (!has_codes(output) || is_exl2(output) != exl2) continue;
      BL_CHECK(count < packed.size());
      packed[count++] = &output;
    }
    if (count > 0) packed_matmul(ctx, args, {packed.data(), count});
  }
}

}  // namespace bl::cuda
