#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"

#include <algorithm>

namespace bl::cuda {
namespace {

using Shape = WgmmaShape<kGroupedTileRows>;

}  // namespace

std::optional<WgmmaGroupedPlan> plan_wgmma_grouped(const DeviceFacts& facts,
                                                   const WgmmaGroupedArgs& args) {
  const bool paired = args.count == 2;
  if (args.out % (paired ? kNTileColumns : 4) != 0) return std::nullopt;
  WgmmaGroupedPlan plan;
  WgmmaGroupedLaunch& launch = plan.launch;
  launch.args = args;
  launch.tile_n_tiles = Shape::kNTiles / args.count;
  const int n_tiles = (args.out + kNTileColumns - 1) / kNTileColumns;
  const int cluster_n_tiles = launch.tile_n_tiles * Shape::kCluster;
  launch.column_tiles = (n_tiles + cluster_n_tiles - 1) / cluster_n_tiles;
  launch.n_tile_room = Shape::kIterKSteps * k_step_bytes(args.widest);
  launch.scales_at = Shape::kRowsBytes + Shape::kNTiles * launch.n_tile_room + kStageHeaderBytes;
  const int stage =
      launch.scales_at + Shape::kIterKSteps * stage_scale_bytes(args.gptq, Shape::kNTiles);
  launch.stage_bytes = (stage + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  launch.store_bytes = paired ? kActivateBytes : kStoreBytes;
  const int beside_stages = kTileAlignment + Shape::kNTiles * launch.store_bytes;
  const int room = wgmma_dynamic_room(facts);
  launch.stages = std::min(kMaxWgmmaStages, (room - beside_stages) / launch.stage_bytes);
  launch.stores_at = launch.stages * launch.stage_bytes;
  if (launch.stages < 2) return std::nullopt;
  plan.bytes = launch.stores_at + beside_stages;
  return plan;
}

}  // namespace bl::cuda
