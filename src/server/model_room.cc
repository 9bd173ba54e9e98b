#include "server/model_room.h"

#include <algorithm>

namespace bl::server {
namespace {

bool fits(std::uint64_t bytes, std::uint64_t budget) { return budget == 0 || bytes <= budget; }

bool fits(const ModelMemory& all, const ModelMemory& budget) {
  return fits(all.device, budget.device) && fits(all.host, budget.host);
}

}  // namespace

RoomPlan plan_room(std::span<const Resident> residents, const ModelMemory& needed,
                   const ModelMemory& budget) {
  ModelMemory all = needed;
  std::vector<std::size_t> may_go;
  for (std::size_t i = 0; i < residents.size(); ++i) {
    all.device += residents[i].memory.device;
    all.host += residents[i].memory.host;
    if (!residents[i].stays) may_go.push_back(i);
  }
  std::stable_sort(may_go.begin(), may_go.end(), [&](std::size_t a, std::size_t b) {
    const Resident& one = residents[a];
    const Resident& other = residents[b];
    if (one.in_use != other.in_use) return other.in_use;
    return one.last_used < other.last_used;
  });
  RoomPlan plan;
  for (const std::size_t i : may_go) {
    if (fits(all, budget)) break;
    all.device -= residents[i].memory.device;
    all.host -= residents[i].memory.host;
    plan.leaving.push_back(i);
  }
  plan.possible = fits(all, budget);
  if (!plan.possible) plan.leaving.clear();
  return plan;
}

}  // namespace bl::server
