#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace bl::cuda {
namespace {

constexpr int kFewestSlots = 3;  // of a ring, for entries to be as long as they may

// Places of `room` for an entry of so many pieces.
TokenRingShape ring_of(const RingShape& room, int most_joined, int space) {
  TokenRingShape ring;
  ring.most_joined = most_joined;
  ring.scale_room = RingShape::rounded(most_joined * room.scale_room);
  ring.slot_bytes = ring.scale_room + RingShape::rounded(most_joined * room.code_room);
  ring.slots = std::min(kMaxRingSlots, space / ring.slot_bytes);
  return ring;
}

// The most strips that a share takes at a time.
int strips_at_once(const StripShares& shares) {
  int longest = 1;
  for (std::size_t i = 0; i + 1 < shares.host_begins.size(); ++i) {
    longest = std::max(longest, shares.host_begins[i + 1] - shares.host_begins[i]);
  }
  return std::min(longest, kEntryStrips);
}

TokenSource source_of(const ProductMatrix& m, bool pairs, const TokenLayout& layout,
                      std::span<const Piece> pieces) {
  TokenSource source;
  source.codes = m.view.codes;
  source.scales = m.view.scales;
  source.strip_bytes = static_cast<std::uint32_t>(m.view.strip_bytes);
  source.scale_stride = static_cast<std::uint32_t>(scale_stride(m.view.kind, m.view.groups));
  source.pieces = m.view.piece_count;
  source.chunks_at = m.chunks_at;
  source.input_at = m.gather * layout.gather_bytes;
  source.scale_bytes = static_cast<std::uint8_t>(scale_bytes(m.view.kind));
  source.chunk_bytes = pairs ? sizeof(ChunkPair) : sizeof(Chunk);
  constexpr int kMostJoined = 255 / kMaxPieceUnits;  // a Piece counts in bytes
  for (int strips = 1; strips <= kEntryStrips; ++strips) {
    const int joined = std::clamp(layout.ring.most_joined / strips, 1, kMostJoined);
    source.joined[strips - 1] = static_cast<std::uint8_t>(joined);
    source.entries[strips - 1] =
        static_cast<std::uint16_t>((m.view.piece_count + joined - 1) / joined);
    for (const Piece& piece : pieces.first(std::min<std::size_t>(joined, pieces.size()))) {
      source.first_codes[strips - 1] += piece.size * 64u;
    }
  }
  return source;
}

}  // namespace

int most_gathers(const ProductArgs& args, const StripShares& shares) {
  if (has_one_gather(args)) return 1;
  if (args.gated) return std::abs(args.matrices[1].gather - args.matrices[0].gather) + 1;
  int most = 1;
  for (std::size_t i = 0; i + 1 < shares.host_begins.size(); ++i) {
    int least = kMaxMatrices;
    int last = 0;
    int before = 0;
    for (int m = 0; m < args.count; ++m) {
      const int end = before + args.matrices[m].view.strips;
      if (before < shares.host_begins[i + 1] && end > shares.host_begins[i]) {
        least = std::min(least, args.matrices[m].gather);
        last = std::max(last, args.matrices[m].gather);
      }
      before = end;
    }
    most = std::max(most, last - least + 1);
  }
  return most;
}

TokenLayout lay_out_token(const ProductArgs& args, const StripShares& shares,
                          const TokenRoom& limits) {
  TokenLayout layout;
  RingShape room;
  int units = 0;
  const int gathers = most_gathers(args, shares);
  int tables = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& matrix = args.matrices[i];
    room.make_room(matrix.piece_bytes, matrix.piece_scale_bytes);
    units = std::max(units, matrix.view.units);
    tables += table_bytes(matrix.view, args.pairs);
  }
  layout.gather_bytes = units * (kInputUnitBytes + kWorthBytes);
  layout.worth_at = units * kInputUnitBytes;
  layout.token_stride = gathers * layout.gather_bytes;
  layout.tables_at = RingShape::rounded(limits.fixed + args.tokens * layout.token_stride);
  layout.bytes = layout.tables_at;
  if (!limits.ring) return layout;
  layout.ring_at = RingShape::rounded(layout.tables_at + tables);
  const int space = limits.all - layout.ring_at - RingShape::kHeadersBytes;
  // Where codes are narrow, twice as many pieces an entry: fewer entries are to be brought and to
  // be waited for.
  layout.ring = ring_of(room, kEntryStrips, space);
  const TokenRingShape twice = ring_of(room, 2 * kEntryStrips, space);
  if (twice.slots >= kFewestSlots) layout.ring = twice;
  // Where there is little room, no more than the share's strips take.
  if (layout.ring.slots < kFewestSlots) {
    layout.ring = ring_of(room, strips_at_once(shares), space);
  }
  layout.bytes = layout.ring_at + RingShape::kHeadersBytes +
                 std::max(layout.ring.slots, 1) * layout.ring.slot_bytes;
  return layout;
}

TokenPlan plan_token(const ProductArgs& args, const StripShares& shares, const TokenLayout& layout,
                     std::span<const std::span<const Piece>> pieces) {
  TokenPlan plan;
  plan.begins = ShareBegins(shares);
  plan.gated = args.gated;
  std::fill(std::begin(plan.first_strips), std::end(plan.first_strips), TokenPlan::kNoStrip);
  int strips = 0;
  for (int i = 0; i < args.count; ++i) {
    const ProductMatrix& m = args.matrices[i];
    plan.sources[i] = source_of(m, args.pairs, layout, pieces[i]);
    if (pieces[i].size() <= TokenPlan::kMostPieces) {
      std::copy(pieces[i].begin(), pieces[i].end(), plan.pieces[i]);
    } else {
      plan.sources[i].far_pieces = args.pairs ? m.view.pair_pieces : m.view.pieces;
    }
    if (i == 0 || !args.gated) plan.first_strips[i] = strips;
    strips += m.view.strips;
  }
  return plan;
}

}  // namespace bl::cuda
