#pragma once
// Products of a few tokens with packed codes: what a decode step consists of.

#include <cstdint>
#include <span>

#include "backend/cuda/ops/activation_math.cuh"
#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/gemm/partition/partition_cache.h"
#include "backend/cuda/prefetch/weight_prefetch.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/layout/code_matrix.h"
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

inline constexpr int kMaxProductTokens = 16;  // of one launch

// Columns of a launch's sums of activations.
BL_HD constexpr int sum_columns(int tokens) { return tokens <= 8 ? 8 : kMaxProductTokens; }

struct ProductMatrix {
  CodeMatrixView view;
  WidthSet widths = 0;  // that its codes have
  bool padded = false;  // it has slots without a channel
  // The most that a piece takes of a strip: of codes, and of scales with what 16-byte copies bring.
  std::int32_t piece_bytes = 0;
  std::int32_t piece_scale_bytes = 0;
  // Activations of all tokens as prepare() made them; null where the product makes them itself.
  const std::uint32_t* fragments = nullptr;
  const float* chunk_sums = nullptr;  // the same, see PrepareTarget; null for held_product()
  const std::uint16_t* place_of_channel = nullptr;  // then [in], see fragment_place
  // Its slots are channels [first_channel, first_channel + channels) in their order, and it reads
  // no others. Else it reads all `channels`, and places say which are its own.
  bool in_order = false;
  int first_channel = 0;
  int channels = 0;
  int gather = 0;               // equal numbers: equal places and chunks; they count from 0
  int chunks_at = 0;            // in a table of all matrices' chunks, where a product has one
  float* out = nullptr;         // [tokens, view.out]
  std::int64_t out_stride = 0;  // elements
  const float* bias = nullptr;  // [view.out] or null
  // Of one token: [view.out] that is added to what is in `out`, or null; and whether nothing is.
  const float* rest = nullptr;
  bool fresh = false;
};

// RMS norm of what a product reads.
struct InputNorm {
  bool present = false;
  const float* weight = nullptr;  // F32 [in] or null for none
  float unit_offset = 0.0f;       // added to the weight
  float eps = 0.0f;
  float share = 0.0f;  // 1 / in
};

struct ProductArgs {
  ProductMatrix matrices[kMaxMatrices];
  int count = 0;
  int tokens = 0;                // at most kMaxProductTokens
  std::int64_t first_token = 0;  // of the prepared rows
  // [all tokens], of prepared rows; where they were left (left_input.h), notes.
  const float* token_scales = nullptr;
  const std::int32_t* channel_of_slot = nullptr;  // of the only matrix, where they were left
  LeftInput leaves;                               // gated ones, to the next product
  const float* x = nullptr;  // [tokens, in]: not read where prepare() did, or left ones serve
  std::int64_t x_stride = 0;
  const float* x_rest = nullptr;  // of one token: added to x, or null; see `rest_multiplies`
  int in = 0;
  // Of shared memory, of what a CTA makes of its input for a gather, and where within it digits'
  // worth begins.
  int gather_bytes = 0;
  int worth_at = 0;
  bool pairs = false;  // chunks of one token are taken in pairs, see takes_pairs()
  InputNorm norm;
  float multiplier = 1.0f;
  bool accumulate = false;
  // The same kernel for any number of tokens, so that a row has the same bits beside any others.
  bool regardless_of_batch = false;
  // Two matrices: matrices[1].out = act(x · W₀) · (x · W₁); matrices[0].out is not written.
  bool gated = false;
  // Two matrices: matrices[0].out = SiLU(x · W₀), and the second one's is as it comes.
  bool gate_alone = false;
  bool rest_multiplies = false;  // x · x_rest is what is read
  ActivationParameters activation;
};

// Of a matrix's table of chunks, or of pairs of them.
BL_HD constexpr int table_bytes(const CodeMatrixView& m, bool pairs) {
  return pairs ? m.pair_count * static_cast<int>(sizeof(ChunkPair))
               : m.chunk_count * static_cast<int>(sizeof(Chunk));
}

// That occur in any of the matrices.
WidthSet widths_of(const ProductArgs& args);

// Whether all are GPTQ with the same zero point everywhere in a matrix.
bool has_no_zeros(const ProductArgs& args);

// Whether all matrices read the same input: their slots hold the same channels, in equal chunks.
inline bool has_one_gather(const ProductArgs& args) {
  for (int i = 1; i < args.count; ++i) {
    if (args.matrices[i].gather != 0) return false;
  }
  return true;
}

// What every launch needs: matrices all EXL2 or all GPTQ, gated ones of equal strips. A bug else.
void check_product(const ProductArgs& args);

// Whether token_product() can make the product: one token or two, whole float4s at multiples of 16
// bytes, and an input that leaves room for the ring.
bool makes_own_input(const DeviceFacts& facts, const ProductArgs& args, const StripShares& shares);

// Whether token_product() takes the chunks of all matrices in pairs.
bool takes_pairs(const DeviceFacts& facts, const ProductArgs& args);

// Enqueues the product of one token or two, whose activations every CTA makes ready by itself, in
// whole numbers (code_digits.cuh). A token's bits do not depend on there being another.
// `pieces`: of a strip of each matrix; those of pairs where args.pairs says so. `ahead`: what is
// brought near for attention and products behind it.
void token_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares,
                   std::span<const std::span<const Piece>> pieces, const ReadAhead& ahead);

// Tokens of one launch of product(): fewer where a multiprocessor has little shared memory.
int most_product_tokens(const DeviceFacts& facts);

// Enqueues it; args.tokens is at most that.
void product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares);

// Activations made ready for one matrix: gathered into its slots, divided by a power of two a
// token, so that binary16 holds any range.
struct PrepareTarget {
  const std::int32_t* channel_of_slot = nullptr;  // [units · 32], −1: nothing
  std::int32_t units = 0;
  const Chunk* chunks = nullptr;
  std::int32_t chunk_count = 0;
  // By tiles of tokens: [units][tokens of the tile][16], see fragment_place.
  std::uint32_t* fragments = nullptr;
  // Σx of chunks, of what is in the fragments, as codes 1 weigh it (kCodeUnit):
  // [units][sum_columns of the tile], of a chunk's first unit.
  float* chunk_sums = nullptr;
};

struct PrepareArgs {
  TensorView x;      // F32 [tokens, in]
  TensorView rests;  // F32 [rests, tokens, in] added to x before its norm, or empty
  TensorView x_sum;  // their sum is left there, F32 as x, or nowhere
  PrepareTarget targets[kMaxMatrices];
  int count = 0;
  int tile = 0;                   // tokens of a launch of product()
  bool sums = true;               // of chunks, too
  float* token_scales = nullptr;  // [tokens] out
  InputNorm norm;
  bool as_notes = false;  // of left_input.h
  // Set to zero on the way: notes of the product behind.
  float* zeros = nullptr;
  int zero_count = 0;
};

void prepare(ExecContext& ctx, const PrepareArgs& args);
// Of its launch for one target, about as many for several; `sums`: of chunks, too.
int prepare_ctas(std::int64_t tokens, bool sums);

}  // namespace bl::cuda
