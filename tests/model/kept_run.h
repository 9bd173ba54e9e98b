#pragma once
// Steps of which few rows are wanted, beside the same steps with all of them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/model.h"
#include "ops/backend.h"
#include "ops/kv_layout.h"

namespace bl::test {

struct KeptText {
  std::vector<std::int32_t> ids;
  std::int32_t past = 0;             // of them are in the pages already
  std::vector<std::int32_t> wanted;  // positions behind them
  const AdapterMix* adapters = nullptr;
};

enum class WantedRows : std::uint8_t { kFew, kAll };

struct KeptResult {
  std::vector<float> logits;     // of the wanted positions, text after text
  std::vector<std::byte> cache;  // all pages of all layers
  std::int64_t query_rows = 0;   // of the last attention; of "ref" alone
  bool past_is_new = false;      // the same
};

// Reads what is past in a step of its own, of which nothing is wanted where few are, and then all
// texts in one step. Memory is what was planned. For host backends.
KeptResult run_kept(Backend& backend, const Model& model, CacheType type,
                    const std::vector<KeptText>& texts, WantedRows rows);

// Few wanted rows equal those of all, to the last bit, and so does the cache. The rows of the
// last attention's queries where few were wanted, on "ref".
std::int64_t expect_kept_equals_all(Backend& backend, const Model& model, CacheType type,
                                    const std::vector<KeptText>& texts);

}  // namespace bl::test
