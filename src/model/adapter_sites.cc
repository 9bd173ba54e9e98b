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

std::int64_t AdapterSites::max_rank() const {
  return std::min(kMaxLoraRank, widest_ / kLoraRankStep * kLoraRankStep);
}

}  // namespace bl
