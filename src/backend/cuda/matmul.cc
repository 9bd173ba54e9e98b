#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/blas_lt.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/dense_product.h"
#include "backend/cuda/dequantize.h"
#include "backend/cuda/product.h"
#include "backend/cuda/rows16.h"
#include "backend/cuda/scratch_plan.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Up to so many, plain matrices are multiplied in F32 activations, eight tokens at a time.
constexpr std::int64_t kFewDenseTokens = 64;

bool has_bias(const MatmulOutput& output) { return !output.bias.empty(); }
const float* bias_of(const MatmulOutput& output) {
  return has_bias(output) ? output.bias.as<const float>() : nullptr;
}

TensorView take_halves(Arena& arena, std::int64_t count) {
  return arena.take(DType::kF16, {std::max<std::int64_t>(count, 1)});
}

// Makes the activations ready for one matrix, or finds the ones made for its equal.
class Preparation {
 public:
  // `at_once`: tokens of a launch.
  Preparation(ExecContext& ctx, std::int64_t tokens, int at_once) : ctx_(ctx), tokens_(tokens) {
    args_.tile = at_once;
  }

  const std::uint32_t* fragments_for(const CodeWeights& weights) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == std::pair{weights.gather, weights.view.units}) {
        return args_.targets[i].fragments;
      }
    }
    BL_CHECK(args_.count < kMaxMatrices);
    const std::int64_t rows = (tokens_ + 7) / 8 * 8;
    PrepareTarget& target = args_.targets[args_.count++];
    target.channel_of_slot = weights.channel_of_slot;
    target.units = weights.view.units;
    target.fragments =
        take_halves(*ctx_.scratch, rows * weights.view.units * kUnitSlots).as<std::uint32_t>();
    keys_.emplace_back(weights.gather, weights.view.units);
    return target.fragments;
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

  StripShares shares(CudaBackend& backend) const {
    return backend.product_plans().find({weights.data(), static_cast<std::size_t>(args.count)},
                                        args.gated, backend.facts().multiprocessors);
  }
};

PackedProduct packed_product(const MatmulArgs& args, std::span<const MatmulOutput* const> outputs) {
  PackedProduct product;
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

// A few tokens: straight from the packed codes, all matrices in one launch.
void packed_matmul(ExecContext& ctx, const MatmulArgs& args,
                   std::span<const MatmulOutput* const> outputs) {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t tokens = args.x.rows();
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  PackedProduct packed = packed_product(args, outputs);
  const StripShares shares = packed.shares(backend);
  if (makes_own_input(backend.facts(), packed.args)) {
    token_product(ctx, packed.args, shares);
    return;
  }
  const int at_once = most_product_tokens(backend.facts());
  Preparation preparation(ctx, tokens, at_once);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    packed.args.matrices[i].fragments = preparation.fragments_for(*packed.weights[i]);
  }
  packed.args.token_scales = preparation.run(args.x, packed.args.norm);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    packed.args.first_token = first;
    packed.args.tokens = static_cast<int>(std::min<std::int64_t>(at_once, tokens - first));
    product(ctx, packed.args, shares);
  }
}

// Activations gathered into the slots of one matrix, in binary16.
Rows16Args gathered_rows(ExecContext& ctx, const MatmulArgs& args, const CodeWeights& weights,
                         float* row_largest) {
  Rows16Args rows;
  rows.x = args.x;
  rows.channel_of_slot = weights.channel_of_slot;
  rows.slots = std::int64_t{weights.view.units} * kUnitSlots;
  rows.rows = take_halves(*ctx.scratch, args.x.rows() * rows.slots).data;
  rows.multiplier = args.multiplier;
  rows.alpha = ctx.scratch->take_f32({1}).as<float>();
  rows.row_largest = row_largest;
  make_rows16(ctx, rows);
  return rows;
}

// Many tokens: expanded strip by strip, multiplied by cuBLASLt.
void expanded_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output,
                     const Rows16Args& rows) {
  ArenaScope scope(*ctx.scratch);
  const CudaOps& ops = cuda_ops_of(ctx);
  const CodeWeights& weights = *cuda_matrix(output.weight).codes();
  const std::int64_t slots = rows.slots;
  const std::int64_t tokens = args.x.rows();
  const std::int64_t strip_bytes = slots * kStripColumns * 2;
  const std::int64_t strips_at_once =
      std::clamp<std::int64_t>(kExpandedBytes / strip_bytes, 1, weights.view.strips);
  const TensorView expanded = take_halves(*ctx.scratch, strips_at_once * strip_bytes / 2);
  for (std::int64_t first = 0; first < weights.view.strips; first += strips_at_once) {
    DequantizeArgs expand;
    expand.view = weights.view;
    expand.first_strip = static_cast<int>(first);
    expand.strips = static_cast<int>(std::min(strips_at_once, weights.view.strips - first));
    expand.rows = expanded.as<__half>();
    dequantize(ctx, expand);
    const std::int64_t column = first * kStripColumns;
    BlasProduct product;
    product.type = DType::kF16;
    product.x = rows.rows;
    product.w = expanded.data;
    product.out = output.out.as<float>() + column;
    product.tokens = tokens;
    product.columns =
        std::min<std::int64_t>(expand.strips * kStripColumns, output.weight->out() - column);
    product.in = slots;
    product.out_stride = output.out.row_stride;
    product.alpha = rows.alpha;
    product.beta = ops.backend->constant(args.accumulate);
    ops.backend->blas().run(product, ops.stream);
  }
  if (has_bias(output)) add_bias(ctx, output.out, bias_of(output));
}

void dense_rows_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output) {
  for (std::int64_t first = 0; first < args.x.rows(); first += kMaxDenseTokens) {
    const std::int64_t count = std::min<std::int64_t>(kMaxDenseTokens, args.x.rows() - first);
    const DenseWeights& weights = *cuda_matrix(output.weight).dense();
    DenseProductArgs product;
    product.x = slice_rows(args.x, first, count);
    product.rows = weights.rows;
    product.type = weights.type;
    product.out = slice_rows(output.out, first, count);
    product.bias = bias_of(output);
    product.multiplier = args.multiplier;
    product.accumulate = args.accumulate;
    dense_product(ctx, product);
  }
}

// cuBLASLt wants rows of 16-byte multiples; odd ones go the other way.
bool blas_takes(const DenseWeights& weights, std::int64_t in) {
  return in % (16 / static_cast<std::int64_t>(size_of(weights.type))) == 0;
}

void dense_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output,
                  float* row_largest) {
  const DenseWeights& weights = *cuda_matrix(output.weight).dense();
  const std::int64_t tokens = args.x.rows();
  const std::int64_t in = output.weight->in();
  if (tokens <= kFewDenseTokens || !blas_takes(weights, in)) {
    dense_rows_matmul(ctx, args, output);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  const CudaOps& ops = cuda_ops_of(ctx);
  BlasProduct product;
  product.w = weights.rows;
  product.tokens = tokens;
  product.columns = output.weight->out();
  product.in = in;
  product.out = output.out.as<float>();
  product.out_stride = output.out.row_stride;
  product.beta = ops.backend->constant(args.accumulate);
  if (weights.type == DType::kF32 && args.x.row_stride == in && args.multiplier == 1.0f) {
    product.type = DType::kF32;
    product.x = args.x.data;
    product.alpha = ops.backend->constant(true);
  } else if (weights.type == DType::kF32) {
    dense_rows_matmul(ctx, args, output);
    return;
  } else {
    Rows16Args rows;
    rows.x = args.x;
    rows.slots = in;
    rows.type = weights.type;
    rows.rows = take_halves(*ctx.scratch, tokens * in).data;
    rows.multiplier = args.multiplier;
    rows.alpha = ctx.scratch->take_f32({1}).as<float>();
    rows.row_largest = row_largest;
    make_rows16(ctx, rows);
    product.type = weights.type;
    product.x = rows.rows;
    product.alpha = rows.alpha;
  }
  ops.backend->blas().run(product, ops.stream);
  if (has_bias(output)) add_bias(ctx, output.out, bias_of(output));
}

bool has_codes(const MatmulOutput& output) { return cuda_matrix(output.weight).codes() != nullptr; }

bool is_exl2(const MatmulOutput& output) {
  return cuda_matrix(output.weight).codes()->view.kind == ScaleKind::kExl2;
}

// Matrices of equal gathers share the gathered activations; outputs of one call mostly do.
void expanded_matmuls(ExecContext& ctx, const MatmulArgs& args, float* row_largest) {
  std::vector<bool> done(args.outputs.size(), false);
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    if (done[i] || !has_codes(args.outputs[i])) continue;
    ArenaScope scope(*ctx.scratch);
    const CodeWeights& first = *cuda_matrix(args.outputs[i].weight).codes();
    const Rows16Args rows = gathered_rows(ctx, args, first, row_largest);
    for (std::size_t j = i; j < args.outputs.size(); ++j) {
      if (done[j] || !has_codes(args.outputs[j])) continue;
      const CodeWeights& other = *cuda_matrix(args.outputs[j].weight).codes();
      if (other.gather != first.gather || other.view.units != first.view.units) continue;
      expanded_matmul(ctx, args, args.outputs[j], rows);
      done[j] = true;
    }
  }
}

bool all_have_codes(const MatmulArgs& args) {
  return args.outputs.size() <= kMaxMatrices &&
         std::all_of(args.outputs.begin(), args.outputs.end(), has_codes);
}

// The norm goes into the launch that makes the activations ready where every matrix has codes and
// tokens are few; elsewhere it is a launch of its own.
bool fuses_norm(const MatmulArgs& args) {
  return args.x.rows() <= kMostPackedTokens && args.norm->kind == NormKind::kRms &&
         args.norm->bias.empty() && all_have_codes(args);
}

// And the activation into the product of gate and up.
bool fuses_activation(const MatmulArgs& args) {
  return args.x.rows() <= kMostPackedTokens && all_have_codes(args) &&
         is_exl2(args.outputs[0]) == is_exl2(args.outputs[1]);
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

}  // namespace

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  if (args.x.rows() == 0) return;
  ArenaScope scope(*ctx.scratch);
  if (args.activation != nullptr) {
    BL_CHECK(args.outputs.size() == 2);
    if (!fuses_activation(args)) {
      MatmulArgs rest = args;
      rest.activation = nullptr;
      matmul(ctx, rest);
      activate(ctx, *args.activation);
      return;
    }
  }
  if (args.norm != nullptr && !fuses_norm(args)) {
    matmul_of_normalised(ctx, args);
    return;
  }
  const bool few = args.x.rows() <= kMostPackedTokens;
  float* row_largest = nullptr;
  if (args.x.rows() > std::min(kFewDenseTokens, kMostPackedTokens)) {
    row_largest = ctx.scratch->take_f32({args.x.rows()}).as<float>();
    find_largest(ctx, args.x, row_largest);
  }
  for (const MatmulOutput& output : args.outputs) {
    if (!has_codes(output)) dense_matmul(ctx, args, output, row_largest);
  }
  if (!few) {
    expanded_matmuls(ctx, args, row_largest);
    return;
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
