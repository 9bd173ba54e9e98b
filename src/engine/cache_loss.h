#pragma once
// What a quantized KV cache costs a model, measured on a short probe.
//
// A key that is stored as k + e gives the score scale · q·(k + e): the codes put scale · q·e into
// the exponent of the softmax. What all keys share cancels there, so that the deviation of scale ·
// q·e over the keys is what changes an answer. It is large where keys have large outliers, since
// an outlier widens the steps of its whole scale group (ops/kv_codec.h).

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_session.h"

namespace bl {

// The loss from which on a cache type is worth a warning: docs/adr/0011 has the figures.
inline constexpr double kNotableCacheLoss = 0.25;

struct CacheLoss {
  double score = 0;        // RMS deviation of a score, over all layers, heads, queries and keys
  double worst_layer = 0;  // the largest RMS deviation of one layer …
  std::int64_t layer = 0;  // … this one, counted from 0 in the order in which layers run
  float largest_key = 0;   // the largest magnitude of an element of its keys
};

// Whether keys of this type are worth measuring: fp32 and fp16 lose nothing that shows.
bool may_lose(CacheType keys);

// Runs some random tokens through the model, 256 where a step holds so many, and returns the loss
// of each type of keys. The cache is as before afterwards. Needs no more memory than a step.
std::vector<CacheLoss> measure_cache_loss(ModelSession& session, std::span<const CacheType> keys);

}  // namespace bl
