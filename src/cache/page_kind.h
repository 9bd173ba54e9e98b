#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/sip_hash.h"
#include "ops/kv_layout.h"

namespace bl {

// Everything that the bytes of a page depend on, apart from its text and salt.
struct PageKind {
  struct Layer {
    std::int32_t kv_heads = 0;
    std::int32_t k_dim = 0;
    std::int32_t v_dim = 0;
    bool operator==(const Layer&) const = default;
  };
  Hash128 model;      // hash of config and weights
  std::string rope;   // description of how positions rotate keys
  std::string order;  // order of rows in a page: Backend::page_order()
  CacheTypes type{};
  std::vector<Layer> layers;
  std::uint64_t page_bytes = 0;  // summed over all layers
  bool operator==(const PageKind&) const = default;
};

}  // namespace bl
