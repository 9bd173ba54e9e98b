#pragma once
// How a wgmma GEMM (17 tokens and more times packed codes, compute capability 9.0) is divided among
// CTAs: pure host code, tested without a card.
//
// CTAs are persistent and go from tile to tile in k_tiles of 64 k. A tile is 128 columns of a
// matrix × 256 rows, or, for few rows, 256 × 64 or 256 × 32 (WgmmaShape). The first warpgroup of a
// CTA produces: one warp copies activations by TMA, one codes by cp.async, and two make scales,
// each for one k_step of a k_tile. The other warpgroups consume, 64 columns each, one n_tile a
// warp: the matrix's columns are the rows of operand A, which is dequantized in registers while the
// wgmma of the k_tile before runs. Two CTAs of large tiles form a cluster: their tiles have the
// same rows, and each CTA copies half of them for both. If there are fewer tiles than fill the
// card, K is split, and the partial sums are reduced afterwards in a fixed order. With a fused
// activation half of a tile's columns are gate's and half are up's.

#include <cstdint>
#include <optional>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/layout/k_step_table.h"
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

// Where act(gate) · up goes, in binary16. *out_scale makes the sums kHalfGate times gate and up.
struct WgmmaActivation {
  __half* rows = nullptr;   // [tokens, out]; null: there is no activation
  std::int64_t stride = 0;  // elements, a multiple of 8
  // kHalfGate · gate, written by a launch in front, if gate and up read different permutations,
  // which one tile cannot. Null: the first of the two matrices is gate.
  const __half* gate = nullptr;  // [tokens, out]
  std::int64_t gate_stride = 0;  // elements, a multiple of 8
  float* act_scale = nullptr;    // out, device: what the rows are divided by
  Activation kind = Activation::kSilu;
  float* largest = nullptr;  // scratch: the largest magnitude of each CTA
  bool settles = false;      // second launch: makes the rows again if act_scale is not 1
};
// Whether an activation can be fused: SiLU, or GELU by tanh, without limits.
inline bool can_fuse_activation(const ActivationParameters& activation) {
  return activation.limit <= 0.0f &&
         (activation.kind == Activation::kSilu || activation.kind == Activation::kGeluTanh);
}

// out = *out_scale · rows · W for all matrices: F32 sums of weights that are rounded to binary16 as
// the formats say.
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
static_assert(kMostIterKSteps == 2 * kKTileKSteps);
inline constexpr int kTileAlignment = 1024;  // of activations in shared memory
inline constexpr int kMaxWgmmaStages = 8;
// Bytes of shared memory that the epilogue needs for each warp; epilogue_store.cuh and
// epilogue_activate.cuh assert them.
inline constexpr int kStoreBytes = 1280;
inline constexpr int kActivateBytes = 2048;
// Bytes of scales of one k_step of a tile (StageScales): two halves a column; GPTQ also has two
// kinds of zero points.
constexpr int stage_scale_bytes(bool gptq, int n_tiles) { return (gptq ? 3 : 1) * n_tiles * 64; }

// With few rows the GEMM is bound by dequantization, not by the tensor cores: more warps decode,
// and a wgmma of fewer rows takes less of their time (bench/ladder/gemm_wgmma_dequant.md).
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
  // Registers of a thread: in the producer warpgroup, and in the consumer warpgroups.
  static constexpr int kFewRegisters = kLarge ? 40 : 56;
  static constexpr int kManyRegisters = kLarge ? 232 : 104;
  // Whether up alone can be activated, for files in which every matrix has a permutation of its
  // own.
  static constexpr bool can_read_gate(bool gptq) { return kLarge && !gptq; }
};

// Calls f(WgmmaShape) with the shape for `tokens` tokens: tiles of few rows cost less a k_tile, but
// half a tile costs as much as a whole one (bench/ladder/gemm_wgmma_dequant.md).
template <class F>
auto with_wgmma_shape(std::int64_t tokens, const F& f) {
  if (tokens <= 32) return f(WgmmaShape<32>{});
  if (tokens <= 128) return f(WgmmaShape<64>{});
  return f(WgmmaShape<256>{});
}

// A launch as the kernel gets it.
struct WgmmaLaunch {
  WgmmaArgs args;
  // Column tiles in front of each matrix; the last entry counts those of all matrices.
  int first_tiles[kMaxMatrices + 1] = {};
  int tile_n_tiles = 0;  // n_tiles of one matrix in a tile
  int row_tiles = 0;
  int cluster_tiles = 0;  // tiles of all clusters
  int k_iters = 0;        // pipeline stages of a tile
  int k_splits = 1;       // ranges into which k_iters are split
  int stages = 0;
  int n_tile_room = 0;  // bytes of one n_tile's codes in a stage
  int scales_at = 0;    // in a stage, behind activations and codes
  int stage_bytes = 0;
  std::uint32_t low_bits = kLowBits;  // see KTileDecoder
  std::uint32_t high_bits = kHighBits;
  // In shared memory: store_bytes for each consumer warp.
  int stores_at = 0;
  int store_bytes = 0;
  int tables_at = 0;  // in shared memory: the KStepTables of the matrices
};

// Returns the dynamic shared memory that a CTA may have.
int wgmma_dynamic_room(const DeviceFacts& facts);

struct WgmmaPlan {
  WgmmaLaunch launch;
  int bytes = 0;  // dynamic shared memory
};
// Plans the launch; nothing if the kernel cannot run it. The addresses of activations (`rows`) are
// not read, since they may be missing yet: `same_rows` says whether they will be equal.
std::optional<WgmmaPlan> plan_wgmma(const DeviceFacts& facts, const WgmmaArgs& args,
                                    bool same_rows);

}  // namespace bl::cuda
