#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sample/sampler_chain.h"

namespace bl {

// Lets a draft draw with the target's samplers: the destructor restores each of them to the state
// in which it was kept.
class KeptSamplers {
 public:
  KeptSamplers() = default;
  KeptSamplers(const KeptSamplers&) = delete;
  KeptSamplers& operator=(const KeptSamplers&) = delete;
  ~KeptSamplers() {
    for (const auto& [sampler, state] : kept_) sampler->restore(state);
  }
  void keep(SamplerChain& sampler) { kept_.emplace_back(&sampler, sampler.state()); }

 private:
  std::vector<std::pair<SamplerChain*, SamplerState>> kept_;
};

// Whether a guess is one of the end tokens (DraftJob::end_tokens, sorted), so that nothing follows.
inline bool is_end(std::span<const std::int32_t> sorted, std::int32_t id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

}  // namespace bl
