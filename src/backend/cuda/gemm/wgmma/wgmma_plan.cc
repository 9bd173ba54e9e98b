#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

#include <algorithm>

#include "backend/cuda/device/alignment.h"

namespace bl::cuda {
namespace {

bool is_gptq(const WgmmaArgs& args) { return args.matrices[0].view.kind != ScaleKind::kExl2; }

// Lays out tiles and shared memory. Returns the bytes of shared memory, or 0 if it does not fit.
template <class Shape>
int lay_out(const WgmmaArgs& args, bool same_rows, int room, WgmmaLaunch& launch) {
  const int k_steps = args.matrices[0].view.k_steps;
  const bool paired = args.has_both();
  launch.tile_n_tiles = Shape::kNTiles / (paired ? 2 : 1);
  // The tiles of a cluster read the same rows, so a matrix with other rows begins a new cluster.
  const int begun = same_rows ? 1 : Shape::kCluster;
  int widest = 0;
  int tiles = 0;
  for (int i = 0; i < args.count; ++i) {
    launch.first_tiles[i] = tiles;
    widest = std::max(widest, args.matrices[i].widest);
    if (paired && i > 0) continue;  // gate and up share their tiles
    const int n_tiles = launch.tile_n_tiles * begun;
    tiles += (args.matrices[i].view.n_tiles + n_tiles - 1) / n_tiles * begun;
  }
  launch.first_tiles[args.count] = tiles;
  launch.row_tiles = static_cast<int>((args.tokens + Shape::kRows - 1) / Shape::kRows);
  launch.cluster_tiles = (tiles + Shape::kCluster - 1) / Shape::kCluster * launch.row_tiles;
  launch.k_iters = (k_steps + Shape::kIterKSteps - 1) / Shape::kIterKSteps;
  launch.n_tile_room = Shape::kIterKSteps * k_step_bytes(widest);
  const int codes = Shape::kNTiles * launch.n_tile_room;
  const int scales = stage_scale_bytes(is_gptq(args), Shape::kNTiles);
  launch.scales_at = Shape::kRowsBytes + codes;
  const int stage = launch.scales_at + Shape::kIterKSteps * scales;
  launch.stage_bytes = (stage + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  const int tables = args.count * k_step_table_bytes(k_steps);
  launch.store_bytes = paired ? kActivateBytes : kStoreBytes;
  const int stores = Shape::kNTiles * launch.store_bytes;
  const int beside_stages = kTileAlignment + stores + tables;
  launch.stages = std::min(kMaxWgmmaStages, (room - beside_stages) / launch.stage_bytes);
  launch.stores_at = launch.stages * launch.stage_bytes;
  launch.tables_at = launch.stores_at + stores;
  return launch.stages < 2 ? 0 : launch.stores_at + beside_stages;
}

// Splits K so that all multiprocessors have work, if partial sums can be F32.
int k_splits_of(const WgmmaArgs& args, const WgmmaLaunch& launch, int clusters) {
  constexpr int kFewestKIters = 2;
  if (args.stores_f16()) return 1;
  std::int64_t columns = 0;
  for (int i = 0; i < args.count; ++i) columns += args.matrices[i].view.out;
  const auto room = static_cast<int>(kPartialFloats / (args.tokens * columns));
  const int most =
      std::min({static_cast<int>(kMaxWgmmaKSplits), launch.k_iters / kFewestKIters, room});
  return std::max(1, std::min(clusters / launch.cluster_tiles, most));
}

bool may_activate(const WgmmaArgs& args, bool same_rows) {
  if (!args.activates()) return true;
  const WgmmaActivation& to = args.activation;
  if (to.stride % 8 != 0 || !is_aligned(to.rows, 16)) return false;
  if (args.has_both()) {
    return args.count == 2 && same_rows && args.matrices[0].view.out == args.matrices[1].view.out;
  }
  const bool is_there = with_wgmma_shape(
      args.tokens, [&]<class Shape>(Shape) { return Shape::can_read_gate(is_gptq(args)); });
  return is_there && args.count == 1 && to.gate_stride % 8 == 0 && is_aligned(to.gate, 16);
}

bool can_run(const WgmmaArgs& args, bool same_rows) {
  if (args.count == 0) return false;
  const bool halves = args.stores_f16();
  const auto is_usual = [&](const WgmmaMatrix& m) {
    return m.view.k_steps == args.matrices[0].view.k_steps &&
           (m.view.kind == ScaleKind::kExl2) == (args.matrices[0].view.kind == ScaleKind::kExl2) &&
           m.view.out % (halves ? kNTileColumns : 4) == 0 && m.out_stride % (halves ? 8 : 4) == 0 &&
           is_aligned(m.out, 16);
  };
  return may_activate(args, same_rows) &&
         std::all_of(args.matrices, args.matrices + args.count, is_usual);
}

}  // namespace

int wgmma_dynamic_room(const DeviceFacts& facts) {
  constexpr int kStatic = 128;  // static shared memory beside the barriers
  return static_cast<int>(facts.shared_bytes_per_cta) -
         static_cast<int>(2 * kMaxWgmmaStages * sizeof(std::uint64_t)) - kStatic;
}

std::optional<WgmmaPlan> plan_wgmma(const DeviceFacts& facts, const WgmmaArgs& args,
                                    bool same_rows) {
  if (!can_run(args, same_rows)) return std::nullopt;
  WgmmaPlan plan;
  plan.launch.args = args;
  with_wgmma_shape(args.tokens, [&]<class Shape>(Shape) {
    plan.bytes = lay_out<Shape>(args, same_rows, wgmma_dynamic_room(facts), plan.launch);
    if (plan.bytes == 0) return;
    const int clusters = facts.multiprocessors / Shape::kCluster;
    plan.launch.k_splits = k_splits_of(args, plan.launch, clusters);
    plan.launch.cluster_tiles *= plan.launch.k_splits;
  });
  if (plan.bytes == 0) return std::nullopt;
  return plan;
}

}  // namespace bl::cuda
