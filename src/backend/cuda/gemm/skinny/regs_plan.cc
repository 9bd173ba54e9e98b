#include "backend/cuda/gemm/skinny/regs_plan.h"

#include <algorithm>
#include <limits>

namespace bl::cuda {
namespace {

// A unit and the chunk that it is of.
struct PlacedUnit {
  int unit = 0;
  int chunk = 0;
};

using Quad = std::vector<PlacedUnit>;

int runs_of(const Quad& quad) {
  int runs = 1;
  for (std::size_t i = 1; i < quad.size(); ++i) {
    if (quad[i].unit != quad[i - 1].unit + 1) ++runs;
  }
  return runs;
}

Quad units_of(const Chunk& chunk, int number) {
  Quad units;
  for (int u = 0; u < chunk.units; ++u) units.push_back({chunk.first_unit + u, number});
  return units;
}

// Chunks stay whole: short ones go where there is room.
std::vector<Quad> pack_quads(std::span<const Chunk> chunks) {
  std::vector<Quad> quads;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Quad units = units_of(chunks[c], static_cast<int>(c));
    const auto takes = [&](const Quad& quad) {
      if (quad.size() + units.size() > kQuadUnits) return false;
      return runs_of(quad) == 1 || quad.back().unit + 1 == units.front().unit;
    };
    const auto room = std::find_if(quads.begin(), quads.end(), takes);
    if (room == quads.end()) {
      quads.push_back(units);
    } else {
      room->insert(room->end(), units.begin(), units.end());
    }
  }
  return quads;
}

// As few as there can be, cut where a quad is full.
std::vector<Quad> cut_quads(std::span<const Chunk> chunks) {
  std::vector<Quad> quads;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (const PlacedUnit& unit : units_of(chunks[c], static_cast<int>(c))) {
      if (quads.empty() || quads.back().size() == kQuadUnits) quads.emplace_back();
      quads.back().push_back(unit);
    }
  }
  return quads;
}

HeldQuad encode(const Quad& quad, std::span<const Chunk> chunks) {
  HeldQuad result;
  const auto codes_of = [&](const PlacedUnit& u) {
    const Chunk& chunk = chunks[static_cast<std::size_t>(u.chunk)];
    return static_cast<int>(chunk.offset) + (u.unit - chunk.first_unit) * chunk.bits;
  };
  int end = codes_of(quad.front());
  result.codes = static_cast<std::uint32_t>(end);
  for (std::size_t i = 0; i < quad.size(); ++i) {
    const Chunk& chunk = chunks[static_cast<std::size_t>(quad[i].chunk)];
    const int at = codes_of(quad[i]);
    if (at != end) {
      result.split = result.pieces;
      result.jump = (at - end) * unit_bytes(1);
    }
    end = at + chunk.bits;
    result.pieces = static_cast<std::uint16_t>(result.pieces + chunk.bits * unit_bytes(1) / 16);
    result.info |= std::uint32_t{chunk.bits} << (4 * i);
    if (i == 0 || quad[i - 1].chunk != quad[i].chunk) result.info |= 1u << (16 + i);
    if (i + 1 == quad.size() || quad[i + 1].chunk != quad[i].chunk) result.info |= 1u << (20 + i);
    result.unit[i] = static_cast<std::uint16_t>(quad[i].unit);
    result.chunk[i] = static_cast<std::uint16_t>(quad[i].chunk);
    result.group[i] = chunk.group;
  }
  if (result.jump == 0) result.split = result.pieces;
  return result;
}

// In instructions of a warp, about.
int cost_of(const HeldQuad& quad) {
  int cost = 0;
  for (int u = 0; u < kQuadUnits; ++u) {
    const int bits = unit_bits(quad.info, u);
    if (bits == 0) break;
    constexpr int kOfChunk = 24;  // its beginning and its end
    // Units of 8 bits are multiplied as if each were a chunk.
    cost += bits == 4 ? 16 : bits == 2 ? 20 : bits == 8 ? 32 : 28;
    if (begins_chunk(quad.info, u) || bits == 8) cost += kOfChunk;
  }
  return cost;
}

// What a CTA of a plan with so many parts takes, in halves of a quad multiplied by a warp.
int time_of(int quads, int strips, int ctas, int parts) {
  const int rounds = ctas / parts;
  if (rounds == 0) return std::numeric_limits<int>::max();
  const int quads_of_part = (quads + parts - 1) / parts;
  const int quads_of_warp = (quads_of_part + kHeldWarps - 1) / kHeldWarps;
  if (quads_of_warp > kWarpQuads) return std::numeric_limits<int>::max();
  // Activations to be loaded; partial sums to be waited for and added up.
  const int fixed = 2 * quads_of_warp + (parts > 1 ? 16 + parts : 0);
  constexpr int kOfStrip = 3;
  return (strips + rounds - 1) / rounds * (2 * quads_of_warp + kOfStrip) + fixed;
}

// Heavy quads beside light ones; warps of equal number modulo four share a scheduler.
void share_out(std::span<HeldQuad> quads, std::span<HeldQuad> of_warps) {
  std::stable_sort(quads.begin(), quads.end(),
                   [](const HeldQuad& a, const HeldQuad& b) { return cost_of(a) > cost_of(b); });
  for (std::size_t i = 0; i < quads.size(); ++i) {
    const std::size_t turn = i / kHeldWarps;
    const std::size_t warp = turn == 0 ? i : 2 * kHeldWarps - 1 - i;
    of_warps[warp * kWarpQuads + turn] = quads[i];
  }
}

int cost_of(std::span<const HeldQuad> quads) {
  int cost = 0;
  for (const HeldQuad& quad : quads) cost += cost_of(quad);
  return cost;
}

}  // namespace

bool is_small_share(int units, std::int64_t all, int ctas) {
  // Between llama3-8b's output projection of attention (128 and 248), faster so, and tinyllama-1.1b
  // (64 of a strip, or 176 and 170), where no launch is.
  constexpr int kFewestUnits = 96;
  constexpr int kFewestOfCta = 200;
  return units < kFewestUnits || all < std::int64_t{kFewestOfCta} * ctas;
}

HeldPlan plan_held(std::span<const Chunk> chunks, int strips, int ctas, int most_parts) {
  HeldPlan plan;
  std::vector<Quad> best;
  int least = std::numeric_limits<int>::max();
  for (const bool whole : {true, false}) {
    std::vector<Quad> quads = whole ? pack_quads(chunks) : cut_quads(chunks);
    for (int parts = 1; parts <= most_parts; ++parts) {
      const int time = time_of(static_cast<int>(quads.size()), strips, ctas, parts);
      if (time >= least) continue;
      least = time;
      best = quads;
      plan.parts = parts;
    }
  }
  if (best.empty()) return {};
  std::vector<HeldQuad> encoded;
  for (const Quad& quad : best) encoded.push_back(encode(quad, chunks));
  const auto parts = static_cast<std::size_t>(plan.parts);
  plan.quads.resize(parts * kPartQuads);
  plan.upper_adds = true;
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t first = encoded.size() * p / parts;
    const std::size_t end = encoded.size() * (p + 1) / parts;
    const std::span<HeldQuad> of_warps = std::span(plan.quads).subspan(p * kPartQuads, kPartQuads);
    share_out(std::span(encoded).subspan(first, end - first), of_warps);
    // Adding up takes a warp about a hundred instructions a strip.
    constexpr int kAdding = 50;
    const int lower = cost_of(of_warps.first(kPartQuads / 2)) / (kHeldWarps / 2);
    const int upper = cost_of(of_warps.last(kPartQuads / 2)) / (kHeldWarps / 2);
    plan.upper_adds = plan.upper_adds && lower - upper >= kAdding;
    for (std::size_t w = 0; w < kHeldWarps; ++w) {
      std::int32_t bytes = 0;
      for (std::size_t q = 0; q < kWarpQuads; ++q)
        bytes += of_warps[w * kWarpQuads + q].pieces * 16;
      plan.code_bytes[w] = std::max(plan.code_bytes[w], bytes);
    }
  }
  return plan;
}

}  // namespace bl::cuda
