#include "backend/cuda/gemm/partition/regs_plan.h"

#include <algorithm>
#include <limits>

namespace bl::cuda {
namespace {

// A k_step and the index of its k_block.
struct PlacedKStep {
  int k_step = 0;
  int k_block = 0;
};

using Quad = std::vector<PlacedKStep>;

int runs_of(const Quad& quad) {
  int runs = 1;
  for (std::size_t i = 1; i < quad.size(); ++i) {
    if (quad[i].k_step != quad[i - 1].k_step + 1) ++runs;
  }
  return runs;
}

Quad k_steps_of(const KBlock& k_block, int number) {
  Quad k_steps;
  for (int u = 0; u < k_block.k_steps; ++u) k_steps.push_back({k_block.first_k_step + u, number});
  return k_steps;
}

// Fills quads with whole k_blocks: a short k_block goes into the first quad with room for it.
std::vector<Quad> pack_quads(std::span<const KBlock> k_blocks) {
  std::vector<Quad> quads;
  for (std::size_t c = 0; c < k_blocks.size(); ++c) {
    const Quad k_steps = k_steps_of(k_blocks[c], static_cast<int>(c));
    const auto takes = [&](const Quad& quad) {
      if (quad.size() + k_steps.size() > kQuadKSteps) return false;
      return runs_of(quad) == 1 || quad.back().k_step + 1 == k_steps.front().k_step;
    };
    const auto room = std::find_if(quads.begin(), quads.end(), takes);
    if (room == quads.end()) {
      quads.push_back(k_steps);
    } else {
      room->insert(room->end(), k_steps.begin(), k_steps.end());
    }
  }
  return quads;
}

// Makes the fewest possible quads: a k_block is cut where a quad is full.
std::vector<Quad> cut_quads(std::span<const KBlock> k_blocks) {
  std::vector<Quad> quads;
  for (std::size_t c = 0; c < k_blocks.size(); ++c) {
    for (const PlacedKStep& k_step : k_steps_of(k_blocks[c], static_cast<int>(c))) {
      if (quads.empty() || quads.back().size() == kQuadKSteps) quads.emplace_back();
      quads.back().push_back(k_step);
    }
  }
  return quads;
}

RegsQuad encode(const Quad& quad, std::span<const KBlock> k_blocks) {
  RegsQuad result;
  const auto codes_of = [&](const PlacedKStep& u) {
    const KBlock& k_block = k_blocks[static_cast<std::size_t>(u.k_block)];
    return static_cast<int>(k_block.offset) + (u.k_step - k_block.first_k_step) * k_block.bits;
  };
  int end = codes_of(quad.front());
  result.codes = static_cast<std::uint32_t>(end);
  for (std::size_t i = 0; i < quad.size(); ++i) {
    const KBlock& k_block = k_blocks[static_cast<std::size_t>(quad[i].k_block)];
    const int at = codes_of(quad[i]);
    if (at != end) {
      result.first_run_copies = result.copies;
      result.jump = (at - end) * k_step_bytes(1);
    }
    end = at + k_block.bits;
    result.copies = static_cast<std::uint16_t>(result.copies + k_block.bits * k_step_bytes(1) / 16);
    result.info |= std::uint32_t{k_block.bits} << (4 * i);
    if (i == 0 || quad[i - 1].k_block != quad[i].k_block) result.info |= 1u << (16 + i);
    if (i + 1 == quad.size() || quad[i + 1].k_block != quad[i].k_block)
      result.info |= 1u << (20 + i);
    result.k_step[i] = static_cast<std::uint16_t>(quad[i].k_step);
    result.k_block[i] = static_cast<std::uint16_t>(quad[i].k_block);
    result.group[i] = k_block.group;
  }
  if (result.jump == 0) result.first_run_copies = result.copies;
  return result;
}

// The cost of a quad, roughly in instructions of a warp.
int cost_of(const RegsQuad& quad) {
  int cost = 0;
  for (int u = 0; u < kQuadKSteps; ++u) {
    const int bits = k_step_bits(quad.info, u);
    if (bits == 0) break;
    constexpr int kOfKBlock = 24;  // its beginning and its end
    // K_steps of 8 bits are multiplied as if each were a k_block.
    cost += bits == 4 ? 16 : bits == 2 ? 20 : bits == 8 ? 32 : 28;
    if (begins_k_block(quad.info, u) || bits == 8) cost += kOfKBlock;
  }
  return cost;
}

// The time of a CTA with this number of k_splits, in halves of the time that a warp needs for a
// quad.
int time_of(int quads, int n_tiles, int ctas, int k_splits) {
  const int rounds = ctas / k_splits;
  if (rounds == 0) return std::numeric_limits<int>::max();
  const int quads_of_k_split = (quads + k_splits - 1) / k_splits;
  const int quads_of_warp = (quads_of_k_split + kRegsWarps - 1) / kRegsWarps;
  if (quads_of_warp > kWarpQuads) return std::numeric_limits<int>::max();
  // Loading activations; waiting for partial sums and adding them.
  const int fixed = 2 * quads_of_warp + (k_splits > 1 ? 16 + k_splits : 0);
  constexpr int kOfNTile = 3;
  return (n_tiles + rounds - 1) / rounds * (2 * quads_of_warp + kOfNTile) + fixed;
}

// Puts light quads beside heavy ones. Warps whose numbers are equal modulo four share a scheduler.
void deal_quads(std::span<RegsQuad> quads, std::span<RegsQuad> of_warps) {
  std::stable_sort(quads.begin(), quads.end(),
                   [](const RegsQuad& a, const RegsQuad& b) { return cost_of(a) > cost_of(b); });
  for (std::size_t i = 0; i < quads.size(); ++i) {
    const std::size_t turn = i / kRegsWarps;
    const std::size_t warp = turn == 0 ? i : 2 * kRegsWarps - 1 - i;
    of_warps[warp * kWarpQuads + turn] = quads[i];
  }
}

int cost_of(std::span<const RegsQuad> quads) {
  int cost = 0;
  for (const RegsQuad& quad : quads) cost += cost_of(quad);
  return cost;
}

}  // namespace

bool is_small_cta_range(int k_steps, std::int64_t all, int ctas) {
  // Thresholds between llama3-8b's output projection of attention (128 k_steps, 248 a CTA), which
  // is faster in registers, and tinyllama-1.1b's matrices (64 k_steps, or 176 and 170), where none
  // is.
  constexpr int kFewestKSteps = 96;
  constexpr int kFewestOfCta = 200;
  return k_steps < kFewestKSteps || all < std::int64_t{kFewestOfCta} * ctas;
}

RegsPlan plan_regs(std::span<const KBlock> k_blocks, int n_tiles, int ctas, int max_k_splits) {
  RegsPlan plan;
  std::vector<Quad> best;
  int least = std::numeric_limits<int>::max();
  for (const bool whole : {true, false}) {
    std::vector<Quad> quads = whole ? pack_quads(k_blocks) : cut_quads(k_blocks);
    for (int k_splits = 1; k_splits <= max_k_splits; ++k_splits) {
      const int time = time_of(static_cast<int>(quads.size()), n_tiles, ctas, k_splits);
      if (time >= least) continue;
      least = time;
      best = quads;
      plan.k_splits = k_splits;
    }
  }
  if (best.empty()) return {};
  std::vector<RegsQuad> encoded;
  for (const Quad& quad : best) encoded.push_back(encode(quad, k_blocks));
  const auto k_splits = static_cast<std::size_t>(plan.k_splits);
  plan.quads.resize(k_splits * kKSplitQuads);
  plan.upper_half_reduces = true;
  for (std::size_t p = 0; p < k_splits; ++p) {
    const std::size_t first = encoded.size() * p / k_splits;
    const std::size_t end = encoded.size() * (p + 1) / k_splits;
    const std::span<RegsQuad> of_warps =
        std::span(plan.quads).subspan(p * kKSplitQuads, kKSplitQuads);
    deal_quads(std::span(encoded).subspan(first, end - first), of_warps);
    // Reducing partial sums costs a warp about a hundred instructions an n_tile.
    constexpr int kAdding = 50;
    const int lower = cost_of(of_warps.first(kKSplitQuads / 2)) / (kRegsWarps / 2);
    const int upper = cost_of(of_warps.last(kKSplitQuads / 2)) / (kRegsWarps / 2);
    plan.upper_half_reduces = plan.upper_half_reduces && lower - upper >= kAdding;
    for (std::size_t w = 0; w < kRegsWarps; ++w) {
      std::int32_t bytes = 0;
      for (std::size_t q = 0; q < kWarpQuads; ++q)
        bytes += of_warps[w * kWarpQuads + q].copies * 16;
      plan.code_bytes[w] = std::max(plan.code_bytes[w], bytes);
    }
  }
  return plan;
}

}  // namespace bl::cuda
