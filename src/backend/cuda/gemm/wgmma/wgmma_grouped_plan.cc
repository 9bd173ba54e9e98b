#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bl::cuda {
namespace {

template <class Shape>
void lay_out(const DeviceFacts& facts, WgmmaGroupedPlan& plan) {
  WgmmaGroupedLaunch& launch = plan.launch;
  const WgmmaGroupedArgs& args = launch.args;
  launch.tile_n_tiles = Shape::kNTiles / args.count;
  const int n_tiles = (args.out + kNTileColumns - 1) / kNTileColumns;
  const int cluster_n_tiles = launch.tile_n_tiles * Shape::kCluster;
  launch.column_tiles = (n_tiles + cluster_n_tiles - 1) / cluster_n_tiles;
  launch.n_tile_room = Shape::kIterKSteps * k_step_bytes(args.widest);
  launch.scales_at = Shape::kRowsBytes + Shape::kNTiles * launch.n_tile_room + kStageHeaderBytes;
  const int stage =
      launch.scales_at + Shape::kIterKSteps * stage_scale_bytes(args.gptq, Shape::kNTiles);
  launch.stage_bytes = (stage + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  launch.store_bytes = args.activates() ? kActivateBytes : kStoreBytes;
  const int beside_stages = kTileAlignment + Shape::kNTiles * launch.store_bytes;
  launch.stages =
      std::min(kMaxWgmmaStages, (wgmma_dynamic_room(facts) - beside_stages) / launch.stage_bytes);
  launch.stores_at = launch.stages * launch.stage_bytes;
  plan.bytes = launch.stores_at + beside_stages;
}

}  // namespace

int choose_tile_rows(std::int64_t rows, std::int64_t groups) {
  // The end of a tile costs as much as so many rows.
  constexpr double kTileEnd = 48.0;
  const double average = static_cast<double>(rows) / static_cast<double>(groups);
  const double deviation = std::sqrt(average);
  int best = 0;
  double least = 0.0;
  for (const int tile_rows : kGroupedTileRows) {
    double tiles = 0.0;  // the mean over a normal distribution, from seven points
    for (const auto& [offset, weight] : {std::pair{0.0, 0.4}, {1.0, 0.24}, {2.0, 0.06}}) {
      for (const double sign : {-1.0, 1.0}) {
        const double n = std::max(1.0, average + sign * offset * deviation);
        tiles += (offset == 0.0 ? 0.5 : 1.0) * weight * std::ceil(n / tile_rows);
      }
    }
    const double cost = tiles * (tile_rows + kTileEnd);
    if (best == 0 || cost < least) {
      best = tile_rows;
      least = cost;
    }
  }
  return best;
}

std::optional<WgmmaGroupedPlan> plan_wgmma_grouped(const DeviceFacts& facts,
                                                   const WgmmaGroupedArgs& args) {
  if (args.out % (args.activates() ? kNTileColumns : 4) != 0) return std::nullopt;
  WgmmaGroupedPlan plan;
  plan.launch.args = args;
  with_grouped_shape(args.tile_rows, [&]<class Shape>(Shape) { lay_out<Shape>(facts, plan); });
  if (plan.launch.stages < 2) return std::nullopt;
  return plan;
}

}  // namespace bl::cuda
