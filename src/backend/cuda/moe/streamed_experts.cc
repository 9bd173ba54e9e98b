#include "backend/cuda/moe/streamed_experts.h"

#include <algorithm>

#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/moe/expert_kernels.h"
#include "backend/cuda/moe/expert_limbs.h"
#include "backend/cuda/moe/expert_scratch.h"
#include "backend/cuda/moe/expert_stream.h"
#include "backend/cuda/moe/expert_token.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

using Matrices = CudaExperts::Matrices;

// Average rows of a chosen expert above which blocks have 8 rows, and above which 16.
constexpr std::int64_t kMostForSmall = 2;
constexpr std::int64_t kMostForMiddle = 5;

std::int32_t block_rows(std::int64_t choices, std::int64_t used) {
  if (choices <= kMostForSmall * used) return kStreamBlocks[0];
  return kStreamBlocks[choices <= kMostForMiddle * used ? 1 : 2];
}

// What a launch is told of one matrix an expert.
void describe(const Matrices& matrices, ExpertProducts& products) {
  products.count = 1;
  products.kind = matrices.kind;
  products.zero = matrices.zero;
  products.k_steps = matrices.k_steps;
  products.k_blocks = matrices.k_blocks;
}

// The calls of one slice of tokens.
class StreamedSlice {
 public:
  StreamedSlice(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts)
      : ctx_(ctx),
        args_(args),
        experts_(experts),
        gate_(experts.matrices(CudaExperts::kGate)),
        up_(experts.matrices(CudaExperts::kUp)),
        down_(experts.matrices(CudaExperts::kDown)) {
    BL_CHECK(down_.in == args_.intermediate);
    const std::int64_t choices = args.x.rows() * args.k;
    rows_ = blocks_of_choices(ctx, args, experts,
                              block_rows(choices, std::min(choices, experts.count())));
    row_count_ = std::int64_t{rows_.blocks} * rows_.block_rows;
  }

  void run() {
    sort_choices(ctx_, rows_);
    const std::int64_t hidden_stride = ExpertScratch::rounded(args_.intermediate);
    float* hidden = floats(row_count_ * hidden_stride);
    multiply_gate_and_up(hidden, hidden_stride);
    const std::int64_t out_stride = ExpertScratch::rounded(down_.out);
    float* y = floats(row_count_ * out_stride);
    multiply_down(hidden, hidden_stride, y, out_stride);
    sum_experts(ctx_, {.rows = rows_,
                       .y = y,
                       .y_stride = out_stride,
                       .out = args_.out.as<float>(),
                       .out_stride = args_.out.row_stride,
                       .columns = static_cast<std::int32_t>(down_.out),
                       .weigh = !args_.weights_on_input});
  }

 private:
  float* floats(std::int64_t count) { return ctx_.scratch->take_f32({count}).as<float>(); }

  // Packs rows for `matrices`, whose n_tiles have up to `k_steps` k_steps.
  const std::byte* pack(ExpertLimbArgs args, const Matrices& matrices, std::int32_t k_steps) {
    const std::int64_t bytes = rows_.blocks * limb_block_bytes(rows_.block_rows, k_steps);
    args.rows = rows_;
    args.table = matrices.table;
    args.k_steps = k_steps;
    args.k_blocks = matrices.k_blocks;
    args.limbs = ctx_.scratch->take(DType::kU8, {bytes}).as<std::byte>();
    pack_expert_limbs(ctx_, args);
    return args.limbs;
  }

  static ExpertStreamArgs::Matrix stream_matrix(const Matrices& matrices, const std::byte* limbs) {
    return {.table = matrices.table,
            .limbs = limbs,
            .copy_block_bytes = matrices.copy_block_bytes,
            .copy_block_scale_bytes = matrices.copy_block_scale_bytes};
  }

  // A launch over all rows by matrices like `like`.
  ExpertStreamArgs stream_args(const Matrices& like, float* to, std::int64_t stride) const {
    ExpertStreamArgs gemm;
    describe(like, gemm);
    gemm.rows = rows_;
    gemm.to = to;
    gemm.to_stride = stride;
    return gemm;
  }

  // hidden = act(gate) · up of all rows in one launch.
  void multiply_gate_and_up(float* hidden, std::int64_t stride) {
    ExpertStreamArgs gemm = stream_args(up_, hidden, stride);
    gemm.k_steps = std::max(gate_.k_steps, up_.k_steps);
    gemm.k_blocks = std::max(gate_.k_blocks, up_.k_blocks);
    gemm.out = static_cast<std::int32_t>(args_.intermediate);
    gemm.activates = true;
    gemm.has_bias = gate_.has_bias || up_.has_bias;
    gemm.activation = activation_parameters(args_.activation);
    ExpertLimbArgs input;
    input.x = args_.x.as<const float>();
    input.x_stride = args_.x.row_stride;
    input.x_of_tokens = true;
    input.weigh = args_.weights_on_input;
    gemm.matrices[0] = stream_matrix(up_, pack(input, up_, gemm.k_steps));
    if (gate_.table != nullptr) {
      const std::byte* of_up = gemm.matrices[0].limbs;
      gemm.matrices[1] = gemm.matrices[0];
      gemm.matrices[0] = stream_matrix(
          gate_, experts_.one_input_layout() ? of_up : pack(input, gate_, gemm.k_steps));
      gemm.count = 2;
    } else if (args_.fused_gate_up) {
      gemm.matrices[1] = gemm.matrices[0];
      gemm.matrices[1].first_n_tile = gemm.out / kNTileColumns;
      gemm.count = 2;
    }
    expert_stream_gemm(ctx_, gemm);
  }

  void multiply_down(const float* hidden, std::int64_t hidden_stride, float* y,
                     std::int64_t stride) {
    ExpertStreamArgs gemm = stream_args(down_, y, stride);
    gemm.out = static_cast<std::int32_t>(down_.out);
    gemm.has_bias = down_.has_bias;
    ExpertLimbArgs input;
    input.x = hidden;
    input.x_stride = hidden_stride;
    gemm.matrices[0] = stream_matrix(down_, pack(input, down_, down_.k_steps));
    expert_stream_gemm(ctx_, gemm);
  }

  ExecContext& ctx_;
  const ExpertsArgs& args_;
  const CudaExperts& experts_;
  const Matrices& gate_;
  const Matrices& up_;
  const Matrices& down_;
  ExpertRows rows_;
  std::int64_t row_count_ = 0;  // of all blocks, live or not
};

// Whether expert_token_gemv() has room for the token's row, which has one layout for gate and up.
bool can_take_one_token(const ExecContext& ctx, const ExpertsArgs& args,
                        const CudaExperts& experts) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  return args.x.rows() == 1 && args.k <= kMostTokenExperts && experts.one_input_layout() &&
         has_room_for_limbs(facts, experts.matrices(CudaExperts::kUp).k_steps);
}

ExpertTokenArgs::Matrix token_matrix(const Matrices& matrices) {
  return {.table = matrices.table,
          .copy_block_bytes = matrices.copy_block_bytes,
          .copy_block_scale_bytes = matrices.copy_block_scale_bytes};
}

// A launch for the token's choices by matrices like `like`.
ExpertTokenArgs token_args(const ExpertsArgs& args, const CudaExperts& experts,
                           const Matrices& like) {
  ExpertTokenArgs gemv;
  gemv.experts = args.experts;
  gemv.weights = args.weights.as<const float>();
  gemv.k = static_cast<std::int32_t>(args.k);
  gemv.expert_count = static_cast<std::int32_t>(experts.count());
  gemv.matrices[0] = token_matrix(like);
  describe(like, gemv);
  return gemv;
}

// Rows for pack_expert_limbs(), one for each choice of the token, and the memory that they go to.
ExpertLimbArgs token_rows(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts,
                          const Matrices& matrices) {
  ExpertLimbArgs rows;
  rows.rows = choices_of(args, experts);
  rows.rows.blocks = rows.rows.choices;
  rows.rows.block_rows = 1;
  rows.table = matrices.table;
  rows.k_steps = matrices.k_steps;
  rows.k_blocks = matrices.k_blocks;
  const std::int64_t bytes = args.k * limb_block_bytes(1, matrices.k_steps);
  rows.limbs = ctx.scratch->take(DType::kU8, {bytes}).as<std::byte>();
  return rows;
}

// Gate and up of one token, with the activation.
ExpertTokenArgs token_gate_and_up(const ExpertsArgs& args, const CudaExperts& experts) {
  const Matrices& gate = experts.matrices(CudaExperts::kGate);
  const Matrices& up = experts.matrices(CudaExperts::kUp);
  ExpertTokenArgs gemv = token_args(args, experts, up);
  gemv.out = static_cast<std::int32_t>(args.intermediate);
  gemv.x = args.x.as<const float>();
  gemv.weigh = args.weights_on_input;
  gemv.activates = true;
  gemv.activation = activation_parameters(args.activation);
  gemv.has_bias = gate.has_bias || up.has_bias;
  if (gate.table != nullptr) {
    gemv.matrices[1] = gemv.matrices[0];
    gemv.matrices[0] = token_matrix(gate);
    gemv.count = 2;
  } else if (args.fused_gate_up) {
    gemv.matrices[1] = gemv.matrices[0];
    gemv.matrices[1].first_n_tile = gemv.out / kNTileColumns;
    gemv.count = 2;
  }
  return gemv;
}

// K_steps of all experts of a layer whose tables are prefetched, 128 bytes each.
constexpr std::int64_t kMostPrefetchedKSteps = 16384;

// One token in three launches, or four where gate and up read packed rows.
void one_token(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts) {
  const Matrices& down = experts.matrices(CudaExperts::kDown);
  const std::int64_t stride = ExpertScratch::rounded(args.intermediate);
  auto* hidden = ctx.scratch->take_f32({args.k * stride}).as<float>();

  ExpertLimbArgs rows = token_rows(ctx, args, experts, down);
  rows.x = hidden;
  rows.x_stride = stride;
  rows.weigh = !args.weights_on_input;

  ExpertTokenArgs second = token_args(args, experts, down);
  second.out = static_cast<std::int32_t>(down.out);
  second.limbs = rows.limbs;
  second.weigh = rows.weigh;
  second.sums = true;
  second.has_bias = down.has_bias;
  second.to = args.out.as<float>();

  ExpertTokenArgs first = token_gate_and_up(args, experts);
  first.to = hidden;
  first.to_stride = stride;

  const DeviceFacts& facts = cuda_device(ctx).facts();
  plan_expert_token(facts, second);
  plan_expert_token(facts, first);
  first.next = next_of(second);
  if (first.own_codes) {
    ExpertLimbArgs input = token_rows(ctx, args, experts, experts.matrices(CudaExperts::kUp));
    input.x = first.x;
    input.x_stride = args.x.row_stride;
    input.x_of_tokens = true;
    input.weigh = first.weigh;
    input.prefetches = experts.count() * input.k_steps <= kMostPrefetchedKSteps;
    first.limbs = input.limbs;
    pack_expert_limbs(ctx, input);
  }
  expert_token_gemv(ctx, first);
  pack_expert_limbs(ctx, rows);
  expert_token_gemv(ctx, second);
}

}  // namespace

bool can_stream_experts(const ExecContext& ctx, const ExpertsArgs& args,
                        const CudaExperts& experts) {
  if (ctx.deterministic || cuda_device(ctx).facts().compute_capability < 90) return false;
  for (const auto role : {CudaExperts::kGate, CudaExperts::kUp, CudaExperts::kDown}) {
    const Matrices& matrices = experts.matrices(role);
    if (matrices.table != nullptr && !matrices.one_kind) return false;
  }
  const Matrices& gate = experts.matrices(CudaExperts::kGate);
  const Matrices& up = experts.matrices(CudaExperts::kUp);
  if (gate.table != nullptr) return gate.kind == up.kind && gate.zero == up.zero;
  return !args.fused_gate_up || args.intermediate % kNTileColumns == 0;
}

void streamed_experts(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts) {
  if (can_take_one_token(ctx, args, experts)) {
    one_token(ctx, args, experts);
  } else {
    StreamedSlice(ctx, args, experts).run();
  }
}

}  // namespace bl::cuda
