#pragma once
// How a wgmma GEMM (17 tokens and more times packed codes, compute capability 9.0) is cut among
// CTAs: pure host code, tested without a card.
//
// A CTA stays on its multiprocessor and goes from tile to tile in k_tiles of 64 k: 128 columns of a
// matrix × 256 rows, or 256 × 64 or × 32 where there are few rows (WgmmaShape). Its first warpgroup
// produces what the next k_tiles need: one warp activations, by the copy engine, one warp codes, by
// cp.async, two warps scales, for one k_step of a k_tile each. The other warpgroups consume, 64
// columns each, one n_tile a warp: columns of the matrix are the rows of operand A, which is
// dequantized in registers while the wgmma of the k_tile before runs. Two CTAs of large tiles form
// a cluster: their tiles have the same rows, and each CTA fetches half of them for both. Where
// there are fewer tiles than would fill the card, K is split, and the partial sums are reduced
// afterwards in a fixed order. With an activation half of a tile's columns are gate's and half are
// up's.

#include <cstdint>
#include <optional>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/layout/magic_numbers.h"
#include "backend/cuda/ops/activation_math.cuh"

struct __half;  // cuda_fp16.h, which host builds do not have

namespace bl::cuda {

struct WgmmaMatrix {
  CodeMatrixView view;
  const __half* rows =
      nullptr;          // [tokens][k_steps · 32], in the matrix's order of k; 16-byte aligned
  int widest = 8;       // bits of its widest codes
  void* out = nullptr;  // [tokens, view.out]
  std::int64_t out_stride = 0;  // elements
};

// Where act(gate) · up of two matrices goes, 16 bits an element. *out_scale makes the products
// kHalfGate times what they mean.
struct WgmmaActivation {
  __half* rows = nullptr;   // [tokens, out]; null: there is no activation
  std::int64_t stride = 0;  // elements, a multiple of 8
  // kHalfGate · gate as a launch in front has left it, where gate and up read different orders of
  // features, which one tile cannot have. Null: the first of the two matrices is gate.
  const __half* gate = nullptr;  // [tokens, out]
  std::int64_t gate_stride = 0;  // elements, a multiple of 8
  float* act_scale = nullptr;    // out, device: what the rows are divided by
  Activation kind = Activation::kSilu;
  float* largest = nullptr;  // scratch
  bool settles = false;      // the launch that makes the rows again where act_scale is not 1
};
// Whether an activation can be fused: SiLU, or GELU by tanh, without limits.
inline bool can_fuse_activation(const ActivationParameters& activation) {
  return activation.limit <= 0.0f &&
         (activation.kind == Activation::kSilu || activation.kind == Activation::kGeluTanh);
}

// out = *out_scale · rows · W for all matrices; F32 sums of weights rounded to binary16 as the
// formats say.
struct WgmmaArgs {
  WgmmaMatrix matrices[kMaxMatrices];  // all EXL2 or all GPTQ, with equally many k_steps
  int count = 0;
  std::int64_t tokens = 0;
  const float* out_scale = nullptr;  // device
  bool accumulate = false;           // F32 results are added to what is there
  // Results are binary16: widths are multiples of 16, strides and addresses of 16 bytes.
  bool halves = false;
  // In place of results. Both matrices are equally wide, a multiple of 16, and read the same rows.
  WgmmaActivation activation;

  bool activates() const { return activation.rows != nullptr; }
  bool has_both() const { return activates() && activation.gate == nullptr; }
  bool stores_f16() const { return halves || activates(); }
};

inline constexpr int kKTileKSteps = 2;
inline constexpr int kMostIterKSteps = 2 * kKTileKSteps;  // k_steps of one pipeline stage, at most
inline constexpr int kTileAlignment = 1024;               // of activations in shared memory
inline constexpr int kMaxWgmmaStages = 8;
// Shared memory of an epilogue, of one warp; epilogue_store.cuh and epilogue_activate.cuh are held
// to these.
inline constexpr int kStoreBytes = 1280;
inline constexpr int kActivateBytes = 2048;
// The table of a matrix's k_steps in shared memory (KStepTable).
inline constexpr int kKStepEntryBytes = 16;
BL_HD constexpr int k_step_entries(int k_steps) {
  return (k_steps / kMostIterKSteps + 2) * kMostIterKSteps;
}
BL_HD constexpr int k_step_table_bytes(int k_steps) {
  return k_step_entries(k_steps) * (kKStepEntryBytes + 1) / 16 * 16 + 16;
}
// Scales of one k_step of a tile (StageScales): two halves a column; with GPTQ two kinds of zero
// points too.
constexpr int stage_scale_bytes(bool gptq, int n_tiles) { return (gptq ? 3 : 1) * n_tiles * 64; }

// With few rows the GEMM is bound by dequantization, not by the tensor cores: more warps decode,
// and the fewer rows a wgmma has, the less it takes from them (bench/ladder/prefill).
template <int kTileRows>
struct WgmmaShape {
  static_assert(kTileRows == 256 || kTileRows == 64 || kTileRows == 32);
  static constexpr bool kLarge = kTileRows == 256;
  static constexpr int kRows = kTileRows;
  static constexpr int kConsumers = kLarge ? 2 : 4;   // warpgroups that multiply
  static constexpr int kNTiles = 4 * kConsumers;      // one a warp
  static constexpr int kCluster = kLarge ? 2 : 1;     // CTAs
  static constexpr int kIterKTiles = kLarge ? 1 : 2;  // k_tiles of one pipeline stage
  static constexpr int kIterKSteps = kIterKTiles * kKTileKSteps;
  // Activations of a k_tile: 128 bytes of a row, over which the copy engine swizzles.
  static constexpr int kKTileBytes = kRows * kKTileKSteps * kKStepSize * 2;
  static constexpr int kRowsBytes = kIterKTiles * kKTileBytes;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Registers of a thread: of the producer warpgroup, and of the consumers.
  static constexpr int kFewRegisters = kLarge ? 40 : 56;
  static constexpr int kManyRegisters = kLarge ? 232 : 104;
  // The activation of up alone, for files whose every matrix has a feature order of its own.
  static constexpr bool takes_gate(bool gptq) { return kLarge && !gptq; }
};

// Calls f(WgmmaShape) with the shape for so many tokens: tiles of few rows cost less a k_tile, and
// half a tile costs as much as a whole one (bench/ladder/prefill).
template <class F>
auto with_wgmma_shape(std::int64_t tokens, const F& f) {
  if (tokens <= 32) return f(WgmmaShape<32>{});
  if (tokens <= 128) return f(WgmmaShape<64>{});
  return f(WgmmaShape<256>{});
}

// A launch as the kernel gets it.
struct WgmmaLaunch {
  WgmmaArgs args;
  int first_tiles[kMaxMatrices + 1] = {};  // tiles of columns; the last: of all matrices
  int tile_n_tiles = 0;                    // n_tiles of one matrix in a tile
  int row_tiles = 0;
  int cluster_tiles = 0;  // tiles of all clusters
  int k_iters = 0;        // pipeline stages of a tile
  int k_splits = 1;       // of these
  int stages = 0;
  int n_tile_room = 0;  // bytes of one n_tile's codes in a stage
  int scales_at = 0;    // in a stage, behind activations and codes
  int stage_bytes = 0;
  std::uint32_t low_bits = kLowBits;  // see KTileDecoder
  std::uint32_t high_bits = kHighBits;
  int stores_at = 0;  // in shared memory, store_bytes for each consumer warp
  int store_bytes = 0;
  int tables_at = 0;  // KStepTables of the matrices
};

struct WgmmaPlan {
  WgmmaLaunch launch;
  int bytes = 0;  // dynamic shared memory
};
// The launch, or nothing where the kernel cannot make it. Addresses of activations (`rows`) may be
// missing yet.
std::optional<WgmmaPlan> plan_wgmma(const DeviceFacts& facts, const WgmmaArgs& args);

}  // namespace bl::cuda
