#pragma once
#include <cstdint>
#include <string>

#include "engine/engine_stats.h"

namespace bl::server {

// What all models together have done, for Prometheus under the names that llama-server uses:
// dashboards made for it go on working. It knows one model, so that its samples have no labels.
struct LlamaMetrics {
  std::int64_t prompt_tokens = 0;  // computed
  std::int64_t cached_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::int64_t longest = 0;  // tokens of the longest prompt with its answer
  double prompt_seconds = 0;
  double generated_seconds = 0;

  void add_state(const EngineStats& stats);
  std::string text() const;

 private:
  std::int64_t running_ = 0;
  std::int64_t waiting_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t decode_tokens_ = 0;
  std::int64_t rounds_ = 0;
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
};

}  // namespace bl::server
