#include "backend/cuda/gemm/packed_gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/gemm/large/gemm_large.h"
#include "backend/cuda/gemm/splitk/reduce_partials.h"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

static_assert(kLeftTile == kMaxProductTokens);

TensorView take_halves(Arena& arena, std::int64_t count) {
  return arena.take(DType::kF16, {std::max<std::int64_t>(count, 1)});
}

// Where a matrix has its channels, without memory for them.
PrepareTarget target_of(const CodeWeights& weights) {
  PrepareTarget target;
  target.channel_of_slot = weights.channel_of_slot;
  target.units = weights.view.units;
  target.chunks = weights.view.chunks;
  target.chunk_count = weights.view.chunk_count;
  return target;
}

// Makes the activations ready for one matrix, or finds the ones made for its equal.
class Preparation {
 public:
  // `at_once`: tokens of a launch.
  Preparation(ExecContext& ctx, std::int64_t tokens, int at_once) : ctx_(ctx), tokens_(tokens) {
    args_.tile = at_once;
  }

  const PrepareTarget& target_for(const CodeWeights& weights) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == key_of(weights)) return args_.targets[i];
    }
    BL_CHECK(args_.count < kMaxMatrices);
    const std::int64_t rows = prepared_rows(tokens_);
    PrepareTarget& target = args_.targets[args_.count++];
    target = target_of(weights);
    target.fragments =
        take_halves(*ctx_.scratch, rows * weights.view.units * kUnitSlots).as<std::uint32_t>();
    if (args_.sums) target.chunk_sums = ctx_.scratch->take_f32({rows, target.units}).as<float>();
    keys_.push_back(key_of(weights));
    return target;
  }

  // The products add activations up themselves.
  void leave_sums_out() { args_.sums = false; }

  // Notes that are to be zeros behind it.
  void clears(float* notes, int count) {
    args_.zeros = notes;
    args_.zero_count = count;
  }

  const float* run(const MatmulArgs& args, const InputNorm& norm) {
    args_.x = args.x;
    args_.rests = args.x_rests;
    args_.x_sum = args.x_sum;
    args_.token_scales = ctx_.scratch->take_f32({tokens_}).as<float>();
    args_.norm = norm;
    prepare(ctx_, args_);
    return args_.token_scales;
  }

 private:
  // Sums of chunks go by how chunks are cut, fragments do not.
  std::pair<std::uint64_t, std::int32_t> key_of(const CodeWeights& weights) const {
    return {args_.sums ? weights.gather : weights.order, weights.view.units};
  }

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
  m.in_order = codes.in_order;
  m.channels = static_cast<int>(output.weight->in());
  m.padded = std::int64_t{codes.view.units} * kUnitSlots != output.weight->in();
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
  std::array<std::span<const Piece>, kMaxMatrices> pieces{};  // of a strip of each matrix
  bool parts = false;    // the matrices are parts of the slots of the first of `weights`
  bool apart = false;    // they read inputs of their own
  TensorView rests_out;  // of several tokens: where results of parts of the slots may stay

  StripShares shares(CudaBackend& backend, bool spare, int late = 0) const {
    const int ctas = backend.facts().multiprocessors;
    if (parts) return backend.product_plans().find_parts(*weights[0], ctas);
    return backend.product_plans().find({weights.data(), static_cast<std::size_t>(args.count)},
                                        {ctas, args.gated, spare, late, spare && apart});
  }
};

// The only matrix becomes its two parts; the second one's results are a rest.
void cut_in_parts(PackedProduct& product, const TensorView& rests_out) {
  const CodeWeights& weights = *product.weights[0];
  BL_CHECK(product.args.count == 1 && weights.parts.size() == 2);
  const ProductMatrix whole = product.args.matrices[0];
  // A part reads its own channels alone; but a norm is that of the whole row.
  const bool in_order = whole.in_order && !product.args.norm.present;
  int first_channel = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    ProductMatrix& part = product.args.matrices[i];
    part = whole;
    part.view = weights.parts[i].view;
    part.place_of_channel = weights.parts[i].place_of_channel;
    part.in_order = in_order;
    if (!in_order) continue;
    part.first_channel = first_channel;
    part.channels = part.view.units * kUnitSlots;
    first_channel += part.channels;
  }
  ProductMatrix& second = product.args.matrices[1];
  second.out = rests_out.as<float>();
  second.bias = nullptr;
  second.rest = nullptr;
  second.fresh = true;
  product.args.count = 2;
  product.parts = true;
}

// Where no share of one token's product has matrices of two gathers, a CTA knows of one.
void name_gathers(const ExecContext& ctx, PackedProduct& product) {
  if (!product.apart || product.args.gated) return;
  const StripShares shares = product.shares(*cuda_ops_of(ctx).backend, true);
  if (most_gathers(product.args, shares) > 1) return;
  for (ProductMatrix& m : product.args.matrices) m.gather = 0;
}

// Finds the pieces of one token's product.
void find_pieces(const DeviceFacts& facts, PackedProduct& product) {
  product.args.pairs = takes_pairs(facts, product.args);
  const auto find = [&](const auto& of) {
    return std::span<const Piece>(product.args.pairs ? of.paired.pieces : of.pieces);
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(product.args.count); ++i) {
    product.pieces[i] =
        product.parts ? find(product.weights[0]->plan.parts[i]) : find(product.weights[i]->plan);
  }
}

PackedProduct packed_product(const ExecContext& ctx, const MatmulArgs& args,
                             std::span<const MatmulOutput* const> outputs, std::int64_t tokens) {
  const bool gated = args.activation != nullptr && !args.activation->product_left;
  PackedProduct product;
  product.args.regardless_of_batch = ctx.deterministic;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    product.weights[i] = cuda_matrix(outputs[i]->weight).codes();
    add_matrix(product.args, *outputs[i], gated ? args.activation->out : outputs[i]->out);
    product.args.matrices[i].gather = gather_number(product.args, product.weights, i);
  }
  product.apart = !has_one_gather(product.args);
  product.args.x = args.x.as<const float>();
  product.args.x_stride = args.x.row_stride;
  product.args.in = static_cast<int>(outputs[0]->weight->in());
  product.args.norm = input_norm(args.norm, product.args.in);
  product.args.multiplier = args.multiplier;
  product.args.accumulate = args.accumulate;
  product.args.gated = gated;
  if (gated) product.args.activation = activation_parameters(*args.activation);
  product.args.tokens = static_cast<int>(std::min<std::int64_t>(kMaxProductTokens, tokens));
  const DeviceFacts& facts = cuda_ops_of(ctx).backend->facts();
  if (tokens > 1) {
    product.rests_out = args.rests_out;
    find_pieces(facts, product);
    return product;
  }
  product.args.x_rest = args.x_rests.as<const float>();
  product.args.gate_alone = args.activation != nullptr && !gated;
  if (!args.x_factor.empty()) {
    product.args.x_rest = args.x_factor.as<const float>();
    product.args.rest_multiplies = true;
  }
  product.args.matrices[0].rest = args.out_rests.as<const float>();
  if (!args.rests_out.empty()) cut_in_parts(product, args.rests_out);
  name_gathers(ctx, product);
  find_pieces(facts, product);
  return product;
}

// How activations that were made ready before are multiplied.
struct Way {
  int at_once = 0;  // tokens of a launch
  int late = 0;     // CTAs of the ring, see ShareWish
  HeldWork held;    // if it exists
};

// `prepares`: by a launch of prepare() before.
Way way_of(const ExecContext& ctx, const PackedProduct& packed, std::int64_t tokens,
           bool prepares) {
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  const LaunchPlan& plan = backend.launch_plan();
  Way way;
  way.at_once = most_product_tokens(backend.facts());
  const bool begins_late = prepares && tokens <= way.at_once;
  const bool small = is_small_work(packed.args, backend.facts().multiprocessors);
  const std::int64_t ring_from = small ? plan.small_ring_from : plan.ring_from;
  if (tokens > 1 && tokens < ring_from && !ctx.deterministic) {
    const auto count = static_cast<std::size_t>(packed.args.count);
    const int late = begins_late ? prepare_ctas(tokens, false) : 0;
    way.held = plan_held_work(backend, packed.args, {packed.weights.data(), count}, late);
  }
  if (begins_late && !way.held.exists()) way.late = prepare_ctas(tokens, true);
  return way;
}

// The same of a matrix alone.
Way way_of_one(const ExecContext& ctx, const PackedMatrix& weight, std::int64_t tokens) {
  const MatmulOutput output{&weight, {}, {}};
  const MatmulOutput* const outputs[] = {&output};
  return way_of(ctx, packed_product(ctx, {}, outputs, tokens), tokens, false);
}

// What the launch of these products asks for of the cache.
KeysAhead keys_ahead(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.attention_behind != nullptr) {
    return keys_ahead_of(ctx, *args.attention_behind, KeysAsker::kQueries);
  }
  if (ctx.next_attention == nullptr) return {};
  if (args.activation != nullptr) {
    return keys_ahead_of(ctx, *ctx.next_attention, KeysAsker::kGate);
  }
  return args.accumulate ? keys_ahead_of(ctx, *ctx.next_attention, KeysAsker::kDown) : KeysAhead{};
}

// The same of weights; `keys`: it asks for keys, too.
WeightsAhead weights_ahead(const ExecContext& ctx, const MatmulArgs& args, bool keys) {
  const NextWeights& next = ctx.next_weights;
  std::array<const CodeWeights*, NextWeights::kMost> codes{};
  for (int i = 0; i < next.count; ++i) codes[i] = cuda_matrix(next.matrices[i]).codes();
  const WeightsAsker asker = args.attention_behind != nullptr ? WeightsAsker::kQueries
                             : next.partly_asked              ? WeightsAsker::kSecond
                             : keys                           ? WeightsAsker::kBesideKeys
                                                              : WeightsAsker::kOther;
  return weights_ahead_of({codes.data(), static_cast<std::size_t>(next.count)}, asker);
}

ReadAhead read_ahead(const ExecContext& ctx, const MatmulArgs& args) {
  ReadAhead ahead{keys_ahead(ctx, args), {}};
  ahead.weights = weights_ahead(ctx, args, ahead.keys.k != nullptr);
  return ahead;
}

bool makes_own(const ExecContext& ctx, std::int64_t tokens) {
  return !ctx.deterministic && tokens < cuda_ops_of(ctx).backend->launch_plan().prepared_from;
}

void multiply_tiles(ExecContext& ctx, PackedProduct& packed, const Way& way, std::int64_t tokens) {
  StripShares shares;
  if (!way.held.exists()) shares = packed.shares(*cuda_ops_of(ctx).backend, false, way.late);
  for (std::int64_t first = 0; first < tokens; first += way.at_once) {
    packed.args.first_token = first;
    packed.args.tokens = static_cast<int>(std::min<std::int64_t>(way.at_once, tokens - first));
    if (way.held.exists()) {
      held_product(ctx, packed.args, way.held);
    } else {
      product(ctx, packed.args, shares);
    }
  }
}

// Results of parts of the slots beside one another; added up unless they may stay so.
void multiply_parts(ExecContext& ctx, PackedProduct& packed, Way& way, std::int64_t tokens) {
  ProductMatrix& m = packed.args.matrices[0];
  const std::int64_t columns = m.view.out;
  const bool stay = !packed.rests_out.empty();
  const TensorView parts =
      stay ? packed.rests_out : ctx.scratch->take_f32({way.held.parts, tokens, columns});
  PartSums sums{.to = view_of(m.out, {tokens, columns}), .parts = parts, .bias = m.bias};
  sums.to.row_stride = m.out_stride;
  if (packed.args.accumulate) sums.from = sums.to;
  m.out = parts.as<float>();
  m.out_stride = columns;
  m.bias = nullptr;
  packed.args.accumulate = false;
  way.held.part_rows = static_cast<int>(tokens);
  multiply_tiles(ctx, packed, way, tokens);
  if (!stay) add_parts(ctx, sums);
}

void multiply(ExecContext& ctx, PackedProduct& packed, Way& way, std::int64_t tokens) {
  if (way.held.parts > 1) return multiply_parts(ctx, packed, way, tokens);
  multiply_tiles(ctx, packed, way, tokens);
}

void multiply_left(ExecContext& ctx, const HalfInput& half, PackedProduct& packed) {
  const std::int64_t tokens = half.rows.rows();
  Way way = way_of(ctx, packed, tokens, false);
  BL_CHECK(packed.args.count == 1 && way.held.exists());
  packed.args.matrices[0].fragments = half.rows.as<const std::uint32_t>();
  packed.args.token_scales = half.notes;
  packed.args.channel_of_slot = packed.weights[0]->channel_of_slot;
  multiply(ctx, packed, way, tokens);
}

}  // namespace

void packed_matmul(ExecContext& ctx, const MatmulArgs& args,
                   std::span<const MatmulOutput* const> outputs) {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t tokens = (args.half_x != nullptr ? args.half_x->rows : args.x).rows();
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  PackedProduct packed = packed_product(ctx, args, outputs, tokens);
  if (args.half_x != nullptr) return multiply_left(ctx, *args.half_x, packed);
  if (makes_own(ctx, tokens)) {
    const StripShares shares = packed.shares(backend, true);
    if (makes_own_input(backend.facts(), packed.args, shares)) {
      return token_product(ctx, packed.args, shares,
                           {packed.pieces.data(), static_cast<std::size_t>(packed.args.count)},
                           read_ahead(ctx, args));
    }
  }
  Way way = way_of(ctx, packed, tokens, true);
  Preparation preparation(ctx, tokens, way.at_once);
  const HalfInput* half = packed.args.gated ? args.activation->half_out : nullptr;
  if (way.held.exists()) {
    preparation.leave_sums_out();
    if (half != nullptr) {
      packed.args.leaves = left_input_of(*half);
      preparation.clears(half->notes, static_cast<int>(tokens));
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const PrepareTarget& target = preparation.target_for(*packed.weights[i]);
    packed.args.matrices[i].fragments = target.fragments;
    packed.args.matrices[i].chunk_sums = target.chunk_sums;
  }
  packed.args.token_scales = preparation.run(args, packed.args.norm);
  multiply(ctx, packed, way, tokens);
  if (half != nullptr && !way.held.exists()) prepare_left(ctx, args.activation->out, *half);
}

bool has_rests(const MatmulArgs& args) {
  return !args.x_rests.empty() || !args.out_rests.empty() || !args.rests_out.empty();
}

namespace {

// Whether token_product() makes it, of one token; the outputs' matrices have codes of one kind.
bool is_token_product(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.half_x != nullptr || args.x.rows() != 1 || !makes_own(ctx, 1)) return false;
  std::array<const MatmulOutput*, kMaxMatrices> outputs{};
  for (std::size_t i = 0; i < args.outputs.size(); ++i) outputs[i] = &args.outputs[i];
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  const PackedProduct packed = packed_product(ctx, args, {outputs.data(), args.outputs.size()}, 1);
  return makes_own_input(backend.facts(), packed.args, packed.shares(backend, true));
}

bool one_token_takes_rests(const ExecContext& ctx, const MatmulArgs& args) {
  if (!args.x_sum.empty()) return false;
  if (!args.rests_out.empty() && rests_left(ctx, *args.outputs[0].weight, 1) == 0) return false;
  return is_token_product(ctx, args);
}

}  // namespace

bool leaves_product(const ExecContext& ctx, const MatmulArgs& args) {
  return args.outputs.size() == 2 && is_exl2(args.outputs[0].weight) &&
         is_exl2(args.outputs[1].weight) &&
         is_plain_silu(activation_parameters(*args.activation)) && is_token_product(ctx, args);
}

bool takes_factor(const ExecContext& ctx, const MatmulArgs& args) {
  return args.outputs.size() == 1 && is_exl2(args.outputs[0].weight) && args.norm == nullptr &&
         args.activation == nullptr && args.x_rests.empty() && is_token_product(ctx, args);
}

// Where gate and up read inputs of their own: a CTA of their product would have to make both ready,
// where it makes one if it has strips of one matrix alone (bench/ladder/exl2_gemv).
bool reader_multiplies(const ExecContext& ctx, const GatedMatrices& matrices,
                       const ActivateArgs& activation) {
  const CudaBackend& backend = *cuda_ops_of(ctx).backend;
  if (activation.gate.rows() != 1 || !makes_own(ctx, 1) || !backend.facts().dependent_launch() ||
      !is_plain_silu(activation_parameters(activation))) {
    return false;
  }
  if (!is_exl2(matrices.gate) || !is_exl2(matrices.up) || !is_exl2(matrices.down)) return false;
  return cuda_matrix(matrices.gate).codes()->gather != cuda_matrix(matrices.up).codes()->gather;
}

bool takes_rests(const ExecContext& ctx, const MatmulArgs& args) {
  const std::int64_t tokens = (args.half_x != nullptr ? args.half_x->rows : args.x).rows();
  if (tokens == 1) return one_token_takes_rests(ctx, args);
  if (ctx.deterministic || makes_own(ctx, tokens) ||
      are_many_rows(ctx, *args.outputs[0].weight, tokens)) {
    return false;
  }
  // Rows are added up by prepare(), before their norm; nobody adds rests of results up.
  if (!args.x_rests.empty() && args.norm == nullptr) return false;
  if (!args.out_rests.empty()) return false;
  return args.rests_out.empty() ||
         (args.accumulate && args.outputs[0].bias.empty() &&
          args.rests_out.rows() == rests_left(ctx, *args.outputs[0].weight, tokens));
}

std::int64_t rests_left(const ExecContext& ctx, const PackedMatrix& weight, std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&weight).codes();
  if (codes == nullptr || !cuda_ops_of(ctx).backend->facts().dependent_launch()) return 0;
  if (tokens == 1) return !codes->parts.empty() && makes_own(ctx, tokens) ? 1 : 0;
  if (ctx.deterministic || makes_own(ctx, tokens) || are_many_rows(ctx, weight, tokens)) return 0;
  const int parts = way_of_one(ctx, weight, tokens).held.parts;
  return parts > 1 ? parts : 0;
}

LeftInput left_input_of(const HalfInput& half) {
  const CodeWeights& codes = *cuda_matrix(half.reader).codes();
  return {half.rows.as<std::uint16_t>(), half.notes, codes.place_of_channel, codes.view.units,
          static_cast<std::int32_t>(half.rows.rows())};
}

bool is_left_input(const ExecContext& ctx, const HalfInput& half) {
  return !are_many_rows(ctx, *half.reader, half.rows.rows());
}

std::int64_t left_input_width(const ExecContext& ctx, const PackedMatrix& reader,
                              std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&reader).codes();
  if (ctx.deterministic || codes == nullptr || codes->place_of_channel == nullptr) return 0;
  const std::int64_t slots = std::int64_t{codes->view.units} * kUnitSlots;
  // Slots without a channel would have to be cleared.
  if (slots != reader.in() || makes_own(ctx, tokens)) return 0;
  if (most_product_tokens(cuda_ops_of(ctx).backend->facts()) != kLeftTile) return 0;
  return way_of_one(ctx, reader, tokens).held.exists() ? slots : 0;
}

void prepare_left(ExecContext& ctx, const TensorView& x, const HalfInput& half) {
  PrepareArgs args;
  args.x = x;
  args.count = 1;
  args.targets[0] = target_of(*cuda_matrix(half.reader).codes());
  args.targets[0].fragments = half.rows.as<std::uint32_t>();
  args.tile = most_product_tokens(cuda_ops_of(ctx).backend->facts());
  args.sums = false;
  args.token_scales = half.notes;
  args.as_notes = true;
  prepare(ctx, args);
}

}  // namespace bl::cuda
