#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/embedded_document.h"
#include "ops/backend.h"

namespace bl::cuda {

// Which kernels make a step's products, by its number of tokens: measured a compute capability
// (`bench --tune`), shipped as launch_plans/*.json. A card takes the plan of the highest capability
// that is not above its own. What a card or a build does not have is never chosen.
struct LaunchPlan {
  // Packed codes times so many tokens or more: activations made ready by a launch of their own;
  // times fewer by every CTA, in whole numbers (token_product.cu).
  std::int64_t prepared_from = 2;
  // Packed codes times so many tokens or more: activations in shared memory (product.cu); times
  // fewer, but more than one, in registers (held_product.cu).
  std::int64_t ring_from = 2;
  // The same for launches that give a CTA little to do (is_small_share).
  std::int64_t small_ring_from = 2;
  // By warpgroups.
  std::int64_t warpgroup_from = 25;
  // Codes are expanded, and cuBLASLt multiplies.
  std::int64_t expanded_from = 65;
  // Codes are not expanded, but decoded in registers on their way into the tensor cores
  // (tile_product.cu; compute capability 9.0 alone); kNeverDecoded: never.
  static constexpr std::int64_t kNeverDecoded = 193;
  std::int64_t decoded_from = kNeverDecoded;
  // The same for rows of fewer slots than kDecodedSlots.
  static constexpr std::int64_t kDecodedSlots = 3072;
  std::int64_t short_decoded_from = kNeverDecoded;
  // Large plain matrices (output layers): cuBLASLt instead of the kernel for a few tokens.
  std::int64_t library_from = 9;

  // Name, value, and what the value may be.
  template <class V>
  void visit(V&& v) {
    v("prepared_from", prepared_from, 2, 3);
    v("ring_from", ring_from, 2, 25);
    v("small_ring_from", small_ring_from, 2, 25);
    v("warpgroup_from", warpgroup_from, 9, 65);
    v("expanded_from", expanded_from, 33, 65);
    v("decoded_from", decoded_from, 65, kNeverDecoded);
    v("short_decoded_from", short_decoded_from, 65, kNeverDecoded);
    v("library_from", library_from, 2, 65);
  }
};

// Throws kInvalidFile for what is no plan: an unknown or missing member, a value out of range.
LaunchPlan parse_launch_plan(std::string_view text, std::string_view what);
// Of the documents named "cc" and a compute capability.
LaunchPlan find_launch_plan(std::span<const EmbeddedDocument> plans, int compute_capability);

std::vector<LaunchChoice> choices_of(LaunchPlan plan);
// Throws kInvalidArgument for an unknown name or a value out of range.
void set_choice(LaunchPlan& plan, std::string_view name, std::int64_t from);

}  // namespace bl::cuda
