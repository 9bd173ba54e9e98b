#include "backend/cuda/layout/code_pack_plan.h"

#include <algorithm>
#include <numeric>

#include "backend/cuda/layout/packed_size.h"
#include "base/check.h"
#include "base/error.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl::cuda {
namespace {

// Copies of scales are rounded outwards to 16 bytes.
constexpr std::size_t kScaleSlack = 16;

// Cuts the units into chunks of one group. `group_scales`: s(g) of EXL2, or empty.
void add_chunks(CodePackPlan& plan, const std::vector<float>& group_scales) {
  std::uint32_t offset = 0;
  const auto units = static_cast<std::size_t>(plan.units());
  for (std::size_t u = 0; u < units;) {
    Chunk chunk;
    chunk.offset = offset;
    chunk.first_unit = static_cast<std::uint16_t>(u);
    chunk.group = static_cast<std::uint16_t>(plan.group_of_unit[u]);
    if (!group_scales.empty()) chunk.group_scale = group_scales[chunk.group];
    chunk.bits = static_cast<std::uint8_t>(plan.bits_of_unit[u]);
    std::size_t end = u;
    while (end < units && end - u < kMaxChunkUnits && plan.group_of_unit[end] == chunk.group) ++end;
    chunk.units = static_cast<std::uint8_t>(end - u);
    offset += static_cast<std::uint32_t>(chunk.units) * chunk.bits;
    plan.chunks.push_back(chunk);
    u = end;
  }
}

// Gathers chunks into pieces. A piece's groups are as few as its units even where the file has
// groups without channels, so that scales take bounded room.
std::vector<Piece> pieces_of(const std::vector<Chunk>& chunks) {
  static_assert(kMaxPieceUnits >= kMaxChunkUnits && kMaxPieceUnits <= 255);
  std::vector<Piece> pieces;
  for (std::size_t c = 0; c < chunks.size();) {
    const Chunk& first = chunks[c];
    Piece piece;
    piece.offset = first.offset;
    piece.first_unit = first.first_unit;
    piece.first_chunk = static_cast<std::uint16_t>(c);
    piece.first_group = first.group;
    for (; c < chunks.size(); ++c) {
      const Chunk& chunk = chunks[c];
      const int groups = chunk.group - first.group + 1;
      if (piece.units + chunk.units > kMaxPieceUnits || groups > kMaxPieceUnits) break;
      piece.size = static_cast<std::uint16_t>(piece.size + chunk.units * chunk.bits);
      piece.units = static_cast<std::uint8_t>(piece.units + chunk.units);
      piece.groups = static_cast<std::uint8_t>(groups);
      ++piece.chunks;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

// Whether they can stand in one run: neighbours, short, of groups that follow each other, of one
// width and length.
bool are_alike(const Chunk& earlier, const Chunk& chunk) {
  return (chunk.units == 1 || chunk.units == 2) && chunk.units == earlier.units &&
         chunk.bits == earlier.bits && chunk.group == earlier.group + 1;
}

// Short groups leave most lanes of a warp idle that makes digits of one of them. Runs end with
// their piece.
std::vector<DigitRun> runs_of(const std::vector<Chunk>& chunks, const std::vector<Piece>& pieces) {
  std::vector<DigitRun> runs;
  for (const Piece& piece : pieces) {
    for (std::size_t i = 0; i < piece.chunks; ++i) {
      const std::size_t c = piece.first_chunk + i;
      const Chunk& chunk = chunks[c];
      if (i > 0 && are_alike(chunks[c - 1], chunk) &&
          runs.back().units + chunk.units <= kMaxChunkUnits) {
        runs.back().units = static_cast<std::uint8_t>(runs.back().units + chunk.units);
      } else {
        runs.push_back({chunk.units, chunk.units, chunk.first_unit});
      }
    }
  }
  return runs;
}

ChunkPair pair_of(const Chunk& first, const Chunk* second) {
  ChunkPair pair;
  pair.codes = first.offset * static_cast<std::uint32_t>(unit_bytes(1));
  pair.bits = first.bits;
  pair.units = first.units;
  const Chunk* const chunks[2] = {&first, second};
  for (std::size_t i = 0; i < 2; ++i) {
    const Chunk* chunk = chunks[i];
    // Of one that is not there scales are 0.
    pair.columns[i].group_scale = chunk == nullptr ? 0 : chunk->group_scale;
    if (i == 1 && chunk != nullptr) pair.units += chunk->units;
    ChunkPair::Sums& sums = pair.sums[i];
    const Chunk& of = chunk == nullptr ? first : *chunk;
    sums.worth = std::uint32_t{of.first_unit} * kWorthBytes;
    sums.scales = std::uint32_t{of.group} * scale_bytes(ScaleKind::kExl2);
    sums.centre = static_cast<float>(exl2_center(of.bits));
    for (int u = 0; u < 3; ++u) {
      const int unit = first.first_unit + u;
      const bool own =
          chunk != nullptr && unit >= chunk->first_unit && unit < chunk->first_unit + chunk->units;
      pair.columns[i].units[u] = own ? unit * kInputUnitBytes : -kInputZeroBytes;
    }
  }
  return pair;
}

// Of EXL2's chunks, two of a run at a time. A pair scales sums as often as two chunks do (in
// code_digits.cuh a lane has those of one strip in two, here of all), so it pays where most chunks
// find another one.
PairTables pairs_of(const std::vector<Chunk>& chunks, const std::vector<Piece>& pieces,
                    const std::vector<DigitRun>& runs) {
  PairTables tables;
  std::vector<std::size_t> pair_of_chunk;
  std::size_t c = 0;
  for (const DigitRun& run : runs) {
    const std::size_t end = c + run.units / run.chunk_units;
    while (c < end) {
      const std::size_t count = c + 1 < end ? 2 : 1;
      pair_of_chunk.insert(pair_of_chunk.end(), count, tables.pairs.size());
      tables.pairs.push_back(pair_of(chunks[c], count == 2 ? &chunks[c + 1] : nullptr));
      c += count;
    }
  }
  constexpr std::size_t kMostOfHundred = 60;
  if (tables.pairs.size() * 100 > chunks.size() * kMostOfHundred) return {};
  for (Piece piece : pieces) {
    const std::size_t first = pair_of_chunk[piece.first_chunk];
    const std::size_t last = pair_of_chunk[piece.first_chunk + std::size_t{piece.chunks} - 1];
    piece.first_chunk = static_cast<std::uint16_t>(first);
    piece.chunks = static_cast<std::uint8_t>(last - first + 1);
    tables.pieces.push_back(piece);
  }
  return tables;
}

// What follows from its chunks.
void add_cuts(ScaleKind kind, StripTables& tables) {
  tables.pieces = pieces_of(tables.chunks);
  tables.runs = runs_of(tables.chunks, tables.pieces);
  if (kind == ScaleKind::kExl2) {
    tables.paired = pairs_of(tables.chunks, tables.pieces, tables.runs);
  }
}

// What a product of one token needs for a chunk, in instructions, roughly.
std::int64_t cost_of(const Chunk& chunk) { return chunk.units * (chunk.bits + 4) + 8; }

// The first chunk of the second of two parts that cost about the same; there is one.
std::size_t middle_of(const std::vector<Chunk>& chunks) {
  std::int64_t all = 0;
  for (const Chunk& chunk : chunks) all += cost_of(chunk);
  std::int64_t cost = 0;
  std::size_t c = 0;
  while (c + 1 < chunks.size() && 2 * cost < all) cost += cost_of(chunks[c++]);
  return c;
}

StripPart part_of(const CodePackPlan& plan, std::size_t begin, std::size_t end) {
  const std::vector<Chunk>& chunks = plan.chunks;
  StripPart part;
  const Chunk first = chunks[begin];
  part.first_byte = std::int64_t{first.offset} * unit_bytes(1);
  for (std::size_t c = begin; c < end; ++c) {
    Chunk chunk = chunks[c];
    chunk.offset -= first.offset;
    chunk.first_unit = static_cast<std::uint16_t>(chunk.first_unit - first.first_unit);
    part.units += chunk.units;
    part.chunks.push_back(chunk);
  }
  add_cuts(plan.kind, part);
  return part;
}

bool pays_in_parts(const CodePackPlan& plan) { return plan.in >= kLongRow && plan.in > plan.out; }

// Of rows that have no slots without a channel, and places for all channels.
void add_parts(CodePackPlan& plan) {
  const auto slots = static_cast<std::int64_t>(plan.channel_of_slot.size());
  if (slots != plan.in || plan.place_of_channel.empty() || plan.chunks.size() < 2) return;
  if (!pays_in_parts(plan)) return;
  const std::size_t middle = middle_of(plan.chunks);
  plan.parts.push_back(part_of(plan, 0, middle));
  plan.parts.push_back(part_of(plan, middle, plan.chunks.size()));
  const std::int32_t longest = std::max(plan.parts[0].units, plan.parts[1].units);
  std::int32_t first_unit = 0;
  for (StripPart& part : plan.parts) {
    for (const std::uint16_t place : plan.place_of_channel) {
      const std::int32_t in_part = place - first_unit * kUnitSlots;
      const bool is_there = in_part >= 0 && in_part < part.units * kUnitSlots;
      part.place_of_channel.push_back(
          static_cast<std::uint16_t>(is_there ? in_part : longest * kUnitSlots));
    }
    first_unit += part.units;
  }
}

void add_places(CodePackPlan& plan) {
  if (plan.channel_of_slot.size() > std::size_t{1} << 16) return;
  const auto in = static_cast<std::size_t>(plan.in);
  std::vector<bool> placed(in);
  std::vector<std::uint16_t> places((in + 3) / 4 * 4);
  for (std::size_t slot = 0; slot < plan.channel_of_slot.size(); ++slot) {
    const std::int32_t channel = plan.channel_of_slot[slot];
    if (channel < 0) continue;
    const auto at = static_cast<std::size_t>(channel);
    places[at] = static_cast<std::uint16_t>(fragment_place(static_cast<int>(slot)));
    placed[at] = true;
  }
  if (std::find(placed.begin(), placed.end(), false) != placed.end()) return;
  plan.place_of_channel = std::move(places);
}

// All that follows from the slots, their groups and widths. `group_scales`: see add_chunks.
void add_tables(CodePackPlan& plan, const std::vector<float>& group_scales) {
  add_chunks(plan, group_scales);
  add_cuts(plan.kind, plan);
  add_places(plan);
  add_parts(plan);
}

void check_units(const CodePackPlan& plan, const std::string& name) {
  if (plan.units() > 65535) {
    fail(ErrorCode::kUnsupported, "{}: {} input channels; the CUDA backend takes up to 2097120",
         name, plan.in);
  }
}

void check_groups(std::int64_t groups, const std::string& name) {
  if (groups > 65535) {
    fail(ErrorCode::kUnsupported, "{}: {} groups of rows; the CUDA backend takes up to 65535", name,
         groups);
  }
}

void choose_zeros(const GptqMatrix& matrix, CodePackPlan& plan) {
  const auto [low, high] = std::minmax_element(matrix.zeros.begin(), matrix.zeros.end());
  BL_CHECK(low != matrix.zeros.end());
  plan.zero = *low;
  if (*low == *high) {
    plan.kind = ScaleKind::kGptq;
  } else if (*high - *low <= 15) {
    plan.kind = ScaleKind::kGptqZeros4;
  } else {
    plan.kind = ScaleKind::kGptqZeros16;
    plan.zero = 0;
  }
}

// The largest f(piece) of all that products read: those of parts are cut otherwise.
template <class F>
std::uint32_t most_of_pieces(const CodePackPlan& plan, const F& f) {
  int most = 0;
  for (const Piece& piece : plan.pieces) most = std::max(most, f(piece));
  for (const StripPart& part : plan.parts) {
    for (const Piece& piece : part.pieces) most = std::max(most, f(piece));
  }
  return static_cast<std::uint32_t>(most);
}

}  // namespace

WidthSet CodePackPlan::widths() const {
  WidthSet set = 0;
  for (const std::int32_t bits : bits_of_unit) set |= width_set({bits});
  return set;
}

std::int64_t CodePackPlan::strip_bytes() const {
  return std::int64_t{unit_bytes(1)} * std::accumulate(bits_of_unit.begin(), bits_of_unit.end(), 0);
}

std::uint32_t CodePackPlan::max_piece_bytes() const {
  return most_of_pieces(*this, [](const Piece& piece) { return piece.size * unit_bytes(1); });
}

std::uint32_t CodePackPlan::max_piece_scale_bytes() const {
  return most_of_pieces(*this, [bytes = scale_bytes(kind)](const Piece& piece) {
    const int begin = piece.first_group * bytes / 16 * 16;
    const int end = ((piece.first_group + piece.groups) * bytes + 15) / 16 * 16;
    return end - begin;
  });
}

std::vector<std::int64_t> CodePackPlan::unit_offsets() const {
  std::vector<std::int64_t> offsets;
  std::int64_t words = 0;
  for (const std::int32_t bits : bits_of_unit) {
    offsets.push_back(words);
    words += unit_bytes(bits) / 4;
  }
  return offsets;
}

CodePackPlan::Layout CodePackPlan::layout() const {
  Layout layout;
  layout.scales = piece_bytes(code_bytes());
  std::size_t end = layout.scales + piece_bytes(scale_bytes_total() + kScaleSlack);
  const auto take = [&end]<class T>(const std::vector<T>& table) {
    const std::size_t at = end;
    end += piece_bytes(table.size() * sizeof(T));
    return at;
  };
  const auto take_tables = [&](const StripTables& of) {
    TablePlaces at;
    at.chunks = take(of.chunks);
    at.pieces = take(of.pieces);
    at.runs = take(of.runs);
    at.pairs = take(of.paired.pairs);
    at.pair_pieces = take(of.paired.pieces);
    at.places = take(of.place_of_channel);
    return at;
  };
  static_cast<TablePlaces&>(layout) = take_tables(*this);
  layout.channels = take(channel_of_slot);
  for (const StripPart& part : parts) layout.parts.push_back(take_tables(part));
  layout.total = end;
  return layout;
}

CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out) {
  CodePackPlan plan;
  plan.in = matrix.in;
  plan.out = out;
  plan.stored_out = matrix.out;
  plan.kind = ScaleKind::kExl2;
  plan.groups = static_cast<std::int32_t>(matrix.groups.size());
  check_groups(plan.groups, matrix.name);
  plan.channel_of_slot = matrix.perm;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const Exl2Matrix::Group& group = matrix.groups[g];
    for (std::int32_t u = 0; u < group.slots / kUnitSlots; ++u) {
      plan.group_of_unit.push_back(static_cast<std::int32_t>(g));
      plan.bits_of_unit.push_back(group.bits);
      plan.word_of_unit.push_back(group.first_word + u * group.bits);
    }
  }
  check_units(plan, matrix.name);
  std::vector<float> group_scales;
  for (const std::uint16_t bits : matrix.q_scale_max) {
    group_scales.push_back(exl2_group_scale(bits));
  }
  add_tables(plan, group_scales);
  return plan;
}

CodePackPlan plan_codes(const GptqMatrix& matrix, std::int64_t out) {
  CodePackPlan plan;
  plan.in = matrix.in;
  plan.out = out;
  plan.stored_out = matrix.out;
  plan.groups = static_cast<std::int32_t>(matrix.groups);
  check_groups(plan.groups, matrix.name);
  choose_zeros(matrix, plan);
  std::vector<std::vector<std::int32_t>> members(static_cast<std::size_t>(matrix.groups));
  for (std::int64_t i = 0; i < matrix.in; ++i) {
    const auto group = static_cast<std::size_t>(matrix.group_of[static_cast<std::size_t>(i)]);
    members[group].push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t g = 0; g < members.size(); ++g) {
    const std::vector<std::int32_t>& channels = members[g];
    const std::size_t units = (channels.size() + kUnitSlots - 1) / kUnitSlots;
    plan.channel_of_slot.insert(plan.channel_of_slot.end(), channels.begin(), channels.end());
    plan.group_of_unit.insert(plan.group_of_unit.end(), units, static_cast<std::int32_t>(g));
    plan.bits_of_unit.insert(plan.bits_of_unit.end(), units, matrix.bits);
    plan.channel_of_slot.resize(plan.group_of_unit.size() * kUnitSlots, -1);
  }
  check_units(plan, matrix.name);
  add_tables(plan, {});
  return plan;
}

}  // namespace bl::cuda
