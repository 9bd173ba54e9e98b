#include "model/adapter_sites.h"

#include <algorithm>

#include "nn/lora.h"

namespace bl {

const AdapterSite* AdapterSites::find(const std::string& module) const {
  const auto found = sites_.find(module);
  return found == sites_.end() ? nullptr : &found->second;
}

std::int64_t AdapterSites::max_rank() const {
  return std::min(kMaxLoraRank, widest_ / kLoraRankStep * kLoraRankStep);
}

}  // namespace bl
