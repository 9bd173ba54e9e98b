#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sample/sampler_chain.h"

namespace bl {

// Draws of a draft leave no trace in the target's samplers: each is, when this goes, as it was when
// it was kept.
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

// Whether a guess is one of these (DraftJob::end_tokens): nothing follows it.
inline bool is_end(std::span<const std::int32_t> sorted, std::int32_t id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

}  // namespace bl
