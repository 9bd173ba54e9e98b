#include "backend/cuda/scratch_plan.h"

#include <algorithm>

#include "backend/cuda/attention/attention_plan.h"
#include "backend/cuda/device/arena_sizes.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/moe/expert_scratch.h"
#include "backend/cuda/ops/argmax.h"
#include "backend/cuda/ops/sample_steps.h"
#include "tensor/arena.h"

namespace bl::cuda {
namespace {

// Upper bound of the length of an input row in the layout of a matrix (slots along K).
std::int64_t most_slots(const Backend::ScratchShape& shape) {
  // Padding of quantization groups at most doubles a row. The loader knows the exact number.
  return std::max(shape.max_slots > 0 ? shape.max_slots : 2 * shape.max_in, shape.max_in) +
         kKStepSize;
}

// most_slots() for inputs that come from the residual stream.
std::int64_t normalised_slots(const Backend::ScratchShape& shape) {
  return 2 * (shape.hidden > 0 ? shape.hidden : shape.max_in) + kKStepSize;
}

std::size_t matmul_bytes(const Backend::ScratchShape& shape) {
  const std::int64_t slots = most_slots(shape);
  const std::int64_t few = std::min(shape.tokens, kMaxPackedTokens);
  const std::int64_t packed_tokens = packed_act_rows(few);
  // The packed activations, and Σx of each k-block, which is at least one k-step long.
  std::size_t bytes = kMaxMatrices * (f16_bytes(packed_tokens * slots) +
                                      f32_bytes(packed_tokens * (slots / kKStepSize))) +
                      f32_bytes(packed_tokens);
  // Split-K partials.
  bytes += f32_bytes(kMaxSplitKNTiles * kNTileColumns * few);
  if (shape.tokens >= kFewestLargeTokens) {
    const std::int64_t strips = (shape.max_out + kNTileColumns - 1) / kNTileColumns;
    const std::int64_t strip_bytes = slots * kNTileColumns * 2;
    std::int64_t expanded = std::max(kExpandedBytes, strip_bytes);
    // Matrices that lie side by side are dequantized together.
    if (strips > 0) expanded = std::min(expanded, kMaxMatrices * strips * strip_bytes);
    // On the wgmma path this memory holds the split-K partials instead.
    const std::int64_t parts =
        std::min(kPartialFloats, kMaxWgmmaKSplits * shape.tokens * kMaxMatrices * shape.max_out);
    const std::size_t most = std::max(f16_bytes(expanded / 2), f32_bytes(parts));
    bytes = std::max(bytes, f16_bytes(shape.tokens * slots) + most + f32_bytes(2));
    // The staged input of the next GEMM, beside the input of this one.
    bytes += f16_bytes(shape.tokens * std::min(slots, normalised_slots(shape))) +
             f32_bytes(shape.tokens);
  }
  // The result of a norm that cannot be fused into the GEMM's prologue, and each row's absmax.
  const std::int64_t normalised = shape.hidden > 0 ? shape.hidden : shape.max_in;
  bytes += f32_bytes(shape.tokens * normalised) + f32_bytes(shape.tokens);
  // The sum of input rows and their split-K partials.
  return bytes + f32_bytes(few * shape.max_in) + 4096;
}

std::size_t experts_bytes(const Backend::ScratchShape& shape) {
  if (shape.experts_per_token == 0 || shape.tokens == 0) return 0;
  // The output of an expert is as wide as its input.
  ExpertScratch s;
  s.experts = shape.experts > 0 ? shape.experts : shape.tokens * shape.experts_per_token;
  s.k = shape.experts_per_token;
  s.input_k_steps = most_slots(shape) / kKStepSize + 1;
  s.input_layouts = 2;
  s.first_width = 2 * shape.expert_intermediate;
  s.hidden_k_steps = 2 * shape.expert_intermediate / kKStepSize + 1;
  s.hidden_width = shape.expert_intermediate;
  s.out = shape.max_in;
  return std::min(s.bytes(shape.tokens), std::max(kExpertSliceBytes, s.bytes(1)));
}

std::size_t attention_bytes(const Backend::ScratchShape& shape, int multiprocessors) {
  const std::int64_t rows = decode_partial_rows(shape.tokens, shape.heads, multiprocessors);
  // The partial results of KV splits; the F32 result, beside the staged input of the next GEMM.
  std::size_t bytes = f32_bytes(rows * shape.head_dim) + f32_bytes(rows * 2) +
                      f32_bytes(shape.tokens * shape.heads * shape.head_dim) +
                      f16_bytes(shape.tokens * most_slots(shape)) + f32_bytes(shape.tokens);
  if (shape.tokens >= kFewestLargeTokens) {
    // The rope table of the queries (cosine and sine of each pair), and each row's absmax.
    bytes += f32_bytes(shape.tokens * shape.head_dim) + f32_bytes(shape.tokens);
  }
  return bytes;
}

std::size_t sample_bytes(std::int64_t wanted) {
  const std::int64_t rows = std::min(wanted, SampleLimits::kRows);
  if (rows == 0) return 0;
  return 2 * arena_bytes(DType::kI64, rows * kSampleParts) +
         arena_bytes(DType::kI32, rows * kSampleBuckets) +
         arena_bytes(DType::kI32, rows * kSampleListed) +
         arena_bytes(DType::kI64, rows * static_cast<std::int64_t>(sizeof(SampleState) / 8)) +
         arena_bytes(DType::kF32, SampleLimits::kEdits);
}

}  // namespace

std::size_t op_scratch_bytes(const Backend::ScratchShape& shape, int multiprocessors) {
  // An op releases its scratch before the next one begins, so only the largest counts.
  return std::max({matmul_bytes(shape), experts_bytes(shape),
                   attention_bytes(shape, multiprocessors),
                   arena_bytes(DType::kI64, shape.tokens * kArgmaxParts),
                   sample_bytes(shape.logit_rows)}) +
         arena_bytes(DType::kI32, kTableInts) + sample_input_bytes(shape.logit_rows);
}

}  // namespace bl::cuda
