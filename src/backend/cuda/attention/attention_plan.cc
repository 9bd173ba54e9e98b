#include "backend/cuda/attention/attention_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl::cuda {
namespace {

constexpr int kCtasPerMultiprocessor = 2;
constexpr int kFewestKeys = 256;  // of a piece: joining them takes as long as reading so many
constexpr int kMostClusterKeys = 8192;
constexpr int kManySpansKeys = 512;  // the same, where there are many spans
constexpr std::size_t kLargestRecorded = std::size_t{1} << 18;  // ints

int divide_up(std::int64_t value, std::int64_t by) {
  return static_cast<int>((value + by - 1) / by);
}

int whole_tiles(std::int64_t keys) { return divide_up(keys, kTileKeys) * kTileKeys; }

int pages_of(const SequenceSpan& s) {
  return divide_up(std::int64_t{s.past} + s.tokens, kPageSlots);
}

// CTAs that a launch should have at least, where the keys suffice.
std::int64_t wanted_ctas(int multiprocessors) {
  return std::int64_t{kCtasPerMultiprocessor} * multiprocessors;
}

// Most keys that a span's tokens see.
std::int64_t visible_keys(const DecodeShape& shape) {
  if (shape.window <= 0) return shape.max_keys;
  // Windows of the first to the last token, and the keys before them in the same tile.
  return std::min<std::int64_t>(shape.max_keys,
                                std::int64_t{shape.window} + shape.tokens + kTileKeys);
}

int piece_keys_of(const DecodeShape& shape, std::int64_t keys, std::int64_t columns) {
  const int even = whole_tiles(divide_up(keys * columns, wanted_ctas(shape.multiprocessors)));
  // Sequences of a batch differ in length: a long one must not wait for one CTA.
  const int most = std::max(kManySpansKeys, whole_tiles(divide_up(keys, kBatchPieces)));
  return std::max({std::min(even, most), kFewestKeys, whole_tiles(divide_up(keys, kMaxPieces))});
}

// Whether the pieces of a (span, kv head) are a cluster. That joins them sooner, but a cluster's
// CTAs start together or not at all: it loses where it would take more of the card than there is,
// and where keys are so many that every multiprocessor is wanted.
bool split_clusters(const DecodeShape& shape, std::int64_t keys, std::int64_t columns,
                    DecodeSplit& split) {
  if (!shape.clusters || keys <= kFewestKeys || keys > kMostClusterKeys) return false;
  const int ctas = std::min(kMostClusterCtas, divide_up(keys, kFewestKeys));
  if (ctas * columns > shape.multiprocessors) return false;
  split.clusters = true;
  split.pieces = ctas;
  split.piece_keys = even_piece_keys(static_cast<int>(keys), ctas);
  split.warps = split.piece_keys > kFewestKeys ? kWideWarps : kUsualWarps;
  return true;
}

// Spans of at most `most_decode` tokens are decode.
SpanCounts count_up_to(std::span<const SequenceSpan> sequences, int most_decode) {
  SpanCounts counts;
  for (const SequenceSpan& s : sequences) {
    if (s.tokens <= 0) continue;
    const bool is_decode = s.tokens <= most_decode;
    (is_decode ? counts.decode_spans : counts.prefill_spans) += 1;
    int& most = is_decode ? counts.decode_tokens : counts.prefill_tokens;
    most = std::max(most, s.tokens);
    counts.page_stride = std::max(counts.page_stride, page_bucket(pages_of(s)));
  }
  return counts;
}

}  // namespace

int page_bucket(int pages) {
  if (pages <= 2) return std::max(pages, 1);
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(pages)));
  if (pages == power) return pages;
  return pages <= power / 2 * 3 ? power / 2 * 3 : 2 * power;
}

std::uint64_t SpanCounts::graph_key() const {
  if (prefill_spans > 0 || decode_spans == 0 || packed_size() > kLargestRecorded) return 0;
  if (decode_tokens > kDecodeTokens) return 0;
  return static_cast<std::uint64_t>(decode_spans) << 40 |
         static_cast<std::uint64_t>(decode_tokens) << 32 | static_cast<std::uint64_t>(page_stride);
}

int most_decode_tokens(std::span<const SequenceSpan> sequences) {
  int longest = 0;
  std::int64_t spans = 0;
  for (const SequenceSpan& s : sequences) {
    spans += s.tokens > 0 ? 1 : 0;
    longest = std::max(longest, s.tokens);
    if (s.tokens > kDecodeTokens && s.past < kLongPast) return kDecodeTokens;
  }
  return longest <= kShortTokens && spans * longest <= kLaunchTokens
             ? std::max(longest, kDecodeTokens)
             : kDecodeTokens;
}

SpanCounts count_spans(std::span<const SequenceSpan> sequences) {
  return count_up_to(sequences, most_decode_tokens(sequences));
}

SpanPlan plan_spans(std::span<const SequenceSpan> sequences) {
  const int most_decode = most_decode_tokens(sequences);
  SpanPlan plan{count_up_to(sequences, most_decode), {}};
  plan.packed.assign(plan.packed_size(), 0);
  std::int32_t* entries = plan.packed.data();
  std::int32_t* pages = plan.packed.data() + plan.pages_offset();
  for (const bool decode : {true, false}) {
    for (const SequenceSpan& s : sequences) {
      if (s.tokens <= 0 || (s.tokens <= most_decode) != decode) continue;
      const SpanEntry entry{.first_token = s.first_token, .tokens = s.tokens, .past = s.past};
      std::memcpy(entries, &entry, sizeof(SpanEntry));
      std::copy_n(s.pages, pages_of(s), pages);
      entries += sizeof(SpanEntry) / 4;
      pages += plan.page_stride;
    }
  }
  return plan;
}

std::size_t packed_ints(std::int64_t sequences, std::int64_t max_pages) {
  const std::int64_t stride = page_bucket(static_cast<int>(max_pages));
  return static_cast<std::size_t>(
      sequences * (static_cast<std::int64_t>(sizeof(SpanEntry) / 4) + stride + kCountersPerSpan));
}

bool has_own_kernels(CacheTypes types) {
  return std::find(kOwnKernels.begin(), kOwnKernels.end(), types) != kOwnKernels.end();
}

DecodeForm decode_form(CacheTypes types, int k_dim, int v_dim, int rows) {
  constexpr int kWidest = 128;  // whose kernels have the registers and the shared memory
  const bool few = rows <= kFewRows;
  DecodeForm form;
  if (types == CacheType::kF16) {
    // The same sums in the same order with either number of tiles.
    form.way = DecodeWay::kHalves;
    form.query_tiles = few ? 1 : 2;
  } else if (!has_own_kernels(types)) {
    form.query_tiles = few && std::max(k_dim, v_dim) <= kWidest ? 1 : 2;
  } else if (few && k_dim == v_dim && (k_dim == 64 || k_dim == kWidest)) {
    form.way = DecodeWay::kCodes;
    form.query_tiles = 1;
  }
  form.clusters = form.query_tiles == 1 && std::max(k_dim, v_dim) <= kWidest;
  return form;
}

DecodeSplit split_decode(const DecodeShape& shape) {
  DecodeSplit split;
  const int rows = shape.tokens * shape.group;
  split.row_tiles = divide_up(rows, kQueryTile);
  split.span_rows = rows;
  split.spans_per_launch = std::min(shape.spans, std::max(kLaunchTokens / shape.tokens, 1));

  const std::int64_t keys = visible_keys(shape);
  if (split.row_tiles > kCountersPerSpan) {
    split.heads_per_launch = shape.kv_heads;
    split.piece_keys = whole_tiles(keys);
    return split;
  }
  split.heads_per_launch = std::min(shape.kv_heads, kCountersPerSpan / split.row_tiles);
  const std::int64_t columns =
      std::int64_t{split.spans_per_launch} * split.heads_per_launch * split.row_tiles;
  if (split.row_tiles == 1 && split_clusters(shape, keys, columns, split)) return split;
  split.piece_keys = piece_keys_of(shape, keys, columns);
  split.pieces = divide_up(keys, split.piece_keys);
  return split;
}

KeyRange key_prefetch_of_piece(const DecodeSplit& split, int kv_heads, int row_bytes,
                               KeyPrefetchSite asker) {
  if (split.pieces == 1 || split.row_tiles > 1 || split.heads_per_launch < kv_heads) return {};
  // What memory can bring between two launches, where the one behind asks for nothing of its own at
  // first, and where it does; more of it gained nothing (bench/ladder/decode_attention).
  constexpr std::int64_t kMostBytes[] = {12 << 20, 6 << 20, 6 << 20};
  const auto keys_of = [&](std::int64_t bytes) {
    const std::int64_t keys = bytes / (std::int64_t{split.pieces} * kv_heads * row_bytes);
    return static_cast<int>(std::min<std::int64_t>(keys, split.piece_keys)) / kWarpKeys * kWarpKeys;
  };
  const auto own = static_cast<std::ptrdiff_t>(asker);
  const std::int64_t before = std::accumulate(kMostBytes, kMostBytes + own, std::int64_t{0});
  return {keys_of(before), keys_of(before + kMostBytes[own])};
}

DecodeCase plain_case(const DecodeSplit& split, int pages) {
  const bool few = pages <= kFewPages;
  if (split.clusters) return few ? DecodeCase::kPlainCluster : DecodeCase::kAny;
  if (split.pieces == 1) return few ? DecodeCase::kPlainAlone : DecodeCase::kAny;
  return DecodeCase::kPlainParts;
}

HopperSplit split_hopper(const DecodeShape& shape) {
  const int rows = shape.tokens * shape.group;
  if (!shape.clusters || rows <= kQueryTile) return {};
  HopperSplit split{.row_tiles = divide_up(rows, kHopperPieceRows)};
  const std::int64_t columns = std::int64_t{shape.spans} * shape.kv_heads * split.row_tiles;
  // A multiprocessor has room for one CTA.
  const std::int64_t pieces =
      std::min({std::int64_t{kMostClusterCtas}, shape.multiprocessors / columns,
                visible_keys(shape) / kFewestKeys});
  if (pieces > 1) split.pieces = static_cast<int>(pieces);
  return split;
}

std::int64_t decode_partial_rows(std::int64_t tokens, std::int64_t heads, int multiprocessors) {
  // Every span of a launch has room for the tokens of the longest. There are at most kBatchPieces,
  // or an even share of the wanted CTAs rounded up, each of kQueryTile rows.
  const std::int64_t launch =
      std::min(tokens * std::min<std::int64_t>(tokens, kDecodeTokens), std::int64_t{kLaunchTokens});
  return std::max(launch * heads * kBatchPieces,
                  wanted_ctas(multiprocessors) * kQueryTile + launch * heads);
}

}  // namespace bl::cuda
