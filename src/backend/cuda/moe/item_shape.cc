#include "backend/cuda/moe/item_shape.h"

#include <algorithm>

namespace bl::cuda {
namespace {

// The producer warp has lanes for eight n_tiles.
constexpr ItemShape kItemShapes[] = {{3, 2}, {3, 1}, {1, 7}, {1, 5}, {1, 3}, {1, 2}, {1, 1}};

// Returns about how many instructions a consumer warp executes for an item (counted by ncu).
double item_instructions(const ItemWork& work, const ItemShape& shape) {
  constexpr double kItem = 250;   // adding the parts up, and what begins an item
  constexpr double kStage = 50;   // passing a stage
  constexpr double kKBlock = 30;  // and kScales for each n_tile
  constexpr double kScales = 15;
  constexpr double kKStep = 8.5;  // of an n_tile
  const int k_blocks = (work.walks * work.k_blocks + shape.parts() - 1) / shape.parts();
  const double k_block_steps = static_cast<double>(work.k_steps) / std::max(work.k_blocks, 1);
  const int copy_blocks = (work.k_steps + kMaxCopyBlockSteps - 1) / kMaxCopyBlockSteps;
  const int joined = std::max(kMostJoinedCopyBlocks / shape.n_tiles(), 1);
  const int stages = work.walks * ((copy_blocks + joined - 1) / joined);
  return kItem + stages * kStage +
         k_blocks * (kKBlock + shape.warp_n_tiles * (kScales + kKStep * k_block_steps));
}

}  // namespace

ItemShape choose_item_shape(const ItemWork& work, int multiprocessors, bool wide) {
  double best = 0;
  ItemShape chosen;
  for (const ItemShape& shape : kItemShapes) {
    if (shape.warp_n_tiles > 1 && !wide) continue;
    const std::int64_t items = work.rows * ((work.n_tiles + shape.n_tiles() - 1) / shape.n_tiles());
    const std::int64_t turns = (items + multiprocessors - 1) / multiprocessors;
    const double cost = static_cast<double>(turns) * item_instructions(work, shape);
    if (best == 0 || cost < best) {
      best = cost;
      chosen = shape;
    }
  }
  return chosen;
}

}  // namespace bl::cuda
