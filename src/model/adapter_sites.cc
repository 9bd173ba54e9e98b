#include "model/adapter_sites.h"

#include <algorithm>

#include "nn/lora.h"

namespace bl {

const AdapterSite* AdapterSites::find(const std::string& module) const {
  const auto found = sites_.find(module);
  return found == sites_.end() ? nullptr : &found->second;
}

const std::string* AdapterSites::refusal(std::string module) const {
  for (;;) {
    const auto found = refused_.find(module);
    if (found != refused_.end()) return &found->second;
    const std::size_t dot = module.rfind('.');
    if (dot == std::string::npos) return nullptr;
    module.resize(dot);
  }
}

void AdapterSites::order_outputs(std::int32_t linear, const std::vector<std::int32_t>& columns) {
  LinearOrigin& origin = origins_[static_cast<std::size_t>(linear)];
  origin.rows.assign(columns.begin(), columns.end());
  const auto site = sites_.find(origin.module);
  if (site != sites_.end()) site->second.parts.at(0).rows = origin.rows;
}

void AdapterSites::order_inputs(std::int32_t linear, std::vector<std::int32_t> inputs) {
  const auto site = sites_.find(origins_[static_cast<std::size_t>(linear)].module);
  if (site != sites_.end()) site->second.inputs = std::move(inputs);
}

std::int64_t AdapterSites::max_rank() const {
  return std::min(kMaxLoraRank, widest_ / kLoraRankStep * kLoraRankStep);
}

}  // namespace bl
