#pragma once
// How the sequences of a step are divided among attention kernels and CTAs: decode and prefill
// spans, KV splits, clusters. Pure host arithmetic.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/prefetch/key_prefetch.h"
#include "base/host_device.h"
#include "ops/attention.h"

namespace bl::cuda {

inline constexpr int kDecodeTokens = 8;      // spans of up to this many tokens are decode spans
inline constexpr int kShortTokens = 64;      // so are spans up to this long behind a long past
inline constexpr int kLongPast = 1024;       // tokens that make a past long
inline constexpr int kQueryTile = 16;        // query rows (token, query head) of a decode CTA
inline constexpr int kFewRows = 8;           // query rows for which there are leaner kernels
inline constexpr int kUsualWarps = 8;        // warps of a decode CTA
inline constexpr int kWideWarps = 16;        // warps of one that has a multiprocessor to itself
inline constexpr int kMostClusterCtas = 8;   // KV splits of a cluster
inline constexpr int kHopperSplitRows = 64;  // query rows of a CTA of attention_hopper_split()
inline constexpr int kMaxKvSplits = 128;     // KV splits of a span
inline constexpr int kBatchKvSplits = 16;    // KV splits of a span, where there are many spans
inline constexpr int kLaunchTokens = 128;  // tokens of one decode launch, a bound on scratch memory
// Upper bound of the tables of one step, in ints.
inline constexpr std::int64_t kTableInts = 1 << 20;
inline constexpr int kCountersPerSpan = 64;  // arrival counters: one a (kv head, query tile)

// Returns the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24 … that is at least `pages`. The graph of a
// captured step serves all lengths of a bucket.
int page_bucket(int pages);

// The number and sizes of a step's spans, on which all of its launch shapes depend.
struct SpanCounts {
  int decode_spans = 0;
  int prefill_spans = 0;
  int decode_tokens = 0;   // most tokens of a decode span
  int prefill_tokens = 0;  // most tokens of a prefill span
  int page_stride = 0;     // page_bucket() of the longest span

  int spans() const { return decode_spans + prefill_spans; }
  // Offsets into SpanPlan::packed and its size, in ints.
  std::size_t pages_offset() const { return sizeof(SpanEntry) / 4 * spans(); }
  std::size_t counters_offset() const {
    return pages_offset() + static_cast<std::size_t>(spans()) * page_stride;
  }
  std::size_t packed_size() const {
    return counters_offset() + static_cast<std::size_t>(decode_spans) * kCountersPerSpan;
  }
  // Steps of the same key have the same launches, so they can share a captured graph. Returns 0 for
  // steps that are not to be captured: a span has more than kDecodeTokens tokens (such lengths
  // hardly come again), or the tables are too large to refill in every replay.
  std::uint64_t graph_key() const;
};

// Returns the number of tokens up to which spans of this step are decode spans. The prefill kernel
// has one CTA a query tile: a short span behind a cached prefix gives it few CTAs, each of which
// walks over the whole past. The decode kernels split the past, so they take such spans too, where
// one launch holds the whole step.
int most_decode_tokens(std::span<const SequenceSpan> sequences);

// Counts the spans of a step; spans without tokens are left out.
SpanCounts count_spans(std::span<const SequenceSpan> sequences);

// The tables of a step, packed into one array of int32 so that one upload suffices:
//   SpanEntry [spans] | pages [spans][page_stride] | counters [decode_spans][kCountersPerSpan]
// Decode spans come first; spans without tokens are left out. The counters are zero.
struct SpanPlan : SpanCounts {
  std::vector<std::int32_t> packed;
};

SpanPlan plan_spans(std::span<const SequenceSpan> sequences);

// Upper bound of the size of SpanPlan::packed, in ints, for `sequences` spans of at most
// `max_pages` pages each.
std::size_t packed_ints(std::int64_t sequences, std::int64_t max_pages);

// The quantized cache types that have kernels of their own. All other pairs of integer widths share
// kernels that take the widths as parameters at run time (docs/adr/0032).
inline constexpr std::array<CacheTypes, 7> kOwnKernels{CacheType::kFp8,
                                                       CacheType::kQ8,
                                                       CacheType::kQ6,
                                                       CacheType::kQ4,
                                                       CacheTypes(CacheType::kQ8, CacheType::kQ6),
                                                       CacheTypes(CacheType::kQ8, CacheType::kQ4),
                                                       CacheTypes(CacheType::kQ6, CacheType::kQ4)};
bool has_own_kernels(CacheTypes types);

// How a decode kernel gets from cache rows to mma fragments.
enum class FragmentSource : std::uint8_t {
  kHalves,  // the cache is binary16
  kCodes,   // dequantizes in registers: whole scale groups, few query rows
  kTile,    // dequantizes to a binary16 tile in shared memory
};

// What a decode kernel is specialized for: any attention, or plain attention with one way to
// combine KV splits. Plain attention is one token a span, whose rope and cache write are fused,
// with rope over whole heads, keys and values of one size, and without windows, soft caps, ALiBi
// slopes or sinks.
enum class DecodeSpecialization : std::uint8_t {
  kAny,
  kPlainOneSplit,  // one KV split of at most kFewPages pages
  kPlainCluster,   // the KV splits are a cluster; at most kFewPages pages
  kPlainPartials,  // the KV splits write partial results to global memory
};
inline constexpr int kFewPages = 32;  // a warp keeps one page index a lane

// The decode kernel that a step takes.
struct DecodeForm {
  FragmentSource source = FragmentSource::kTile;
  int query_tiles = 2;    // tiles of kFewRows query rows
  bool clusters = false;  // can combine KV splits as a cluster, on cards that have them
};

// `rows`: the most query rows of a (span, kv head).
DecodeForm decode_form(CacheTypes types, int k_dim, int v_dim, int rows);

// What the decode launches of one layer depend on.
struct DecodeShape {
  int spans = 0;
  int tokens = 0;  // most tokens of a span
  int kv_heads = 0;
  int group = 0;     // query heads for each kv head
  int max_keys = 0;  // keys in the page bucket of the longest span
  int window = 0;
  int multiprocessors = 0;
  bool clusters = false;  // the KV splits of a (span, kv head) may be a cluster
};

// How the decode launches of a layer divide their work.
struct DecodeSplit {
  int row_tiles = 1;  // query tiles of kQueryTile rows of a (span, kv head)
  int span_rows = 1;  // rows of partial results of one KV split of a (span, kv head)
  int spans_per_launch = 1;
  int heads_per_launch = 1;
  int kv_splits = 1;
  int split_keys = kTileKeys;
  bool clusters = false;  // the KV splits are a cluster and share each span's keys evenly
  int warps = kUsualWarps;
};

DecodeSplit split_decode(const DecodeShape& shape);

// Returns the keys of each KV split that the GEMM at `site` should prefetch into L2, in whole runs
// of kWarpKeys. `row_bytes`: bytes of a key and its value.
KeyRange key_prefetch_of_split(const DecodeSplit& split, int kv_heads, int row_bytes,
                               KeyPrefetchSite site);

// Returns the case of a launch of plain attention over spans of at most `pages` pages.
DecodeSpecialization plain_case(const DecodeSplit& split, int pages);

// How attention_hopper_split() divides the decode spans of a step. It reads the keys once for
// kHopperSplitRows query rows, where the decode kernel reads them for every kQueryTile rows.
struct HopperSplit {
  int row_tiles = 0;
  int kv_splits = 0;  // CTAs of a cluster; 0: use the decode kernel
};

HopperSplit split_hopper(const DecodeShape& shape);

// Returns the first key that must be read for a query at `position`: the start of its window,
// rounded down to a whole tile.
BL_HD inline int first_key_of(int position, int window) {
  const int first = window > 0 && position >= window ? position + 1 - window : 0;
  return first / kTileKeys * kTileKeys;
}

// Upper bound of the rows of partial results, of v_dim + 2 floats each, that a decode launch of a
// step needs.
std::int64_t decode_partial_rows(std::int64_t tokens, std::int64_t heads, int multiprocessors);

}  // namespace bl::cuda
