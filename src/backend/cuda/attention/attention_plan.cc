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
constexpr int kFewestKeys = 256;        // of a KV split: combining takes as long as reading so many
constexpr int kMostClusterKeys = 8192;  // of a span, with clusters
constexpr int kManySpansKeys = 512;     // the least of a KV split, where there are many spans
constexpr std::size_t kLargestRecorded = std::size_t{1} << 18;  // ints of a captured step's tables

int divide_up(std::int64_t value, std::int64_t by) {
  return static_cast<int>((value + by - 1) / by);
}

int whole_tiles(std::int64_t keys) { return divide_up(keys, kTileKeys) * kTileKeys; }

int pages_of(const SequenceSpan& s) {
  return divide_up(std::int64_t{s.past} + s.tokens, kPageSlots);
}

// The number of CTAs that a launch aims for, if there are enough keys.
std::int64_t wanted_ctas(int multiprocessors) {
  return std::int64_t{kCtasPerMultiprocessor} * multiprocessors;
}

// The most keys that the tokens of a span see.
std::int64_t visible_keys(const DecodeShape& shape) {
  if (shape.window <= 0) return shape.max_keys;
  // The windows of all tokens, and the keys before them in the first tile.
  return std::min<std::int64_t>(shape.max_keys,
                                std::int64_t{shape.window} + shape.tokens + kTileKeys);
}

int split_keys_of(const DecodeShape& shape, std::int64_t keys, std::int64_t columns) {
  const int even = whole_tiles(divide_up(keys * columns, wanted_ctas(shape.multiprocessors)));
  // Sequences of a batch differ in length: the keys of a long one must not end up in one CTA.
  const int most = std::max(kManySpansKeys, whole_tiles(divide_up(keys, kBatchKvSplits)));
  return std::max({std::min(even, most), kFewestKeys, whole_tiles(divide_up(keys, kMaxKvSplits))});
}

// Decides whether the KV splits of a (span, kv head) are a cluster, and sets `split` if they are. A
// cluster combines sooner, but its CTAs start together or not at all. It loses where the launch
// would not fit the card at once, and where there are so many keys that every multiprocessor is
// needed.
bool split_clusters(const DecodeShape& shape, std::int64_t keys, std::int64_t columns,
                    DecodeSplit& split) {
  if (!shape.clusters || keys <= kFewestKeys || keys > kMostClusterKeys) return false;
  const int ctas = std::min(kMostClusterCtas, divide_up(keys, kFewestKeys));
  if (ctas * columns > shape.multiprocessors) return false;
  split.clusters = true;
  split.kv_splits = ctas;
  split.split_keys = even_split_keys(static_cast<int>(keys), ctas);
  split.warps = split.split_keys > kFewestKeys ? kWideWarps : kUsualWarps;
  return true;
}

// Counts spans; those of at most `most_decode` tokens are decode spans.
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
  constexpr int kWidest = 128;  // the largest head for which registers and shared memory suffice
  const bool few = rows <= kFewRows;
  DecodeForm form;
  if (types == CacheType::kF16) {
    // Both numbers of tiles give the same sums in the same order.
    form.source = FragmentSource::kHalves;
    form.query_tiles = few ? 1 : 2;
  } else if (!has_own_kernels(types)) {
    form.query_tiles = few && std::max(k_dim, v_dim) <= kWidest ? 1 : 2;
  } else if (few && k_dim == v_dim && (k_dim == 64 || k_dim == kWidest)) {
    form.source = FragmentSource::kCodes;
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
    split.split_keys = whole_tiles(keys);
    return split;
  }
  split.heads_per_launch = std::min(shape.kv_heads, kCountersPerSpan / split.row_tiles);
  const std::int64_t columns =
      std::int64_t{split.spans_per_launch} * split.heads_per_launch * split.row_tiles;
  if (split.row_tiles == 1 && split_clusters(shape, keys, columns, split)) return split;
  split.split_keys = split_keys_of(shape, keys, columns);
  split.kv_splits = divide_up(keys, split.split_keys);
  return split;
}

KeyRange key_prefetch_of_split(const DecodeSplit& split, int kv_heads, int row_bytes,
                               KeyPrefetchSite site) {
  if (split.kv_splits == 1 || split.row_tiles > 1 || split.heads_per_launch < kv_heads) return {};
  // Bytes that each site prefetches: what memory can deliver between two launches. The first site
  // may fetch more, because the launch behind it reads nothing of its own at first. More gained
  // nothing (bench/ladder/attention_decode.md).
  constexpr std::int64_t kMostBytes[] = {12 << 20, 6 << 20, 6 << 20};
  const auto keys_of = [&](std::int64_t bytes) {
    const std::int64_t keys = bytes / (std::int64_t{split.kv_splits} * kv_heads * row_bytes);
    return static_cast<int>(std::min<std::int64_t>(keys, split.split_keys)) / kWarpKeys * kWarpKeys;
  };
  const auto own = static_cast<std::ptrdiff_t>(site);
  const std::int64_t before = std::accumulate(kMostBytes, kMostBytes + own, std::int64_t{0});
  return {keys_of(before), keys_of(before + kMostBytes[own])};
}

DecodeSpecialization plain_case(const DecodeSplit& split, int pages) {
  const bool few = pages <= kFewPages;
  if (split.clusters) return few ? DecodeSpecialization::kPlainCluster : DecodeSpecialization::kAny;
  if (split.kv_splits == 1)
    return few ? DecodeSpecialization::kPlainOneSplit : DecodeSpecialization::kAny;
  return DecodeSpecialization::kPlainPartials;
}

HopperSplit split_hopper(const DecodeShape& shape) {
  const int rows = shape.tokens * shape.group;
  if (!shape.clusters || rows <= kQueryTile) return {};
  HopperSplit split{.row_tiles = divide_up(rows, kHopperSplitRows)};
  const std::int64_t columns = std::int64_t{shape.spans} * shape.kv_heads * split.row_tiles;
  // Only one CTA fits on a multiprocessor.
  const std::int64_t kv_splits =
      std::min({std::int64_t{kMostClusterCtas}, shape.multiprocessors / columns,
                visible_keys(shape) / kFewestKeys});
  if (kv_splits > 1) split.kv_splits = static_cast<int>(kv_splits);
  return split;
}

std::int64_t decode_partial_rows(std::int64_t tokens, std::int64_t heads, int multiprocessors) {
  // Every span of a launch has room for the tokens of the longest one. A span has at most
  // kBatchKvSplits KV splits, or an even share of the wanted CTAs, rounded up, each with kQueryTile
  // rows.
  const std::int64_t launch =
      std::min(tokens * std::min<std::int64_t>(tokens, kDecodeTokens), std::int64_t{kLaunchTokens});
  return std::max(launch * heads * kBatchKvSplits,
                  wanted_ctas(multiprocessors) * kQueryTile + launch * heads);
}

}  // namespace bl::cuda
