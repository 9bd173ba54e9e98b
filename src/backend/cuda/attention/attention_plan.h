#pragma once
// How the sequences of a step are shared out among kernels. Pure arithmetic on the host.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/prefetch/key_prefetch.h"
#include "base/host_device.h"
#include "ops/attention.h"

namespace bl::cuda {

inline constexpr int kDecodeTokens = 8;      // spans of at most so many tokens are decode
inline constexpr int kShortTokens = 64;      // so are those behind a long past, in a small step
inline constexpr int kLongPast = 1024;       // tokens
inline constexpr int kQueryTile = 16;        // rows (token, head of the group) of a decode CTA
inline constexpr int kFewRows = 8;           // of them, for which there are leaner kernels
inline constexpr int kUsualWarps = 8;        // of a decode CTA
inline constexpr int kWideWarps = 16;        // of one that has a card's multiprocessor to itself
inline constexpr int kMostClusterCtas = 8;   // that share a cluster's keys
inline constexpr int kHopperPieceRows = 64;  // rows of a cluster of the kernel for many of them
inline constexpr int kMaxPieces = 128;       // parts that the keys of a span are cut into
inline constexpr int kBatchPieces = 16;      // the same, where there are many spans
inline constexpr int kLaunchTokens = 128;    // tokens of one decode launch, which bounds scratch
// Page tables of one step, in ints.
inline constexpr std::int64_t kTableInts = 1 << 20;
inline constexpr int kCountersPerSpan = 64;  // one a (kv head, query tile) of a launch

// The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24 … that is at least `pages`: a recorded step serves
// all lengths of a bucket.
int page_bucket(int pages);

// How many spans a step has and how large they are: all that its launches depend on.
struct SpanCounts {
  int decode_spans = 0;
  int prefill_spans = 0;
  int decode_tokens = 0;   // most tokens of a decode span
  int prefill_tokens = 0;  // most tokens of a prefill span
  int page_stride = 0;     // bucket of the longest span, in pages

  int spans() const { return decode_spans + prefill_spans; }
  // Parts of SpanPlan::packed, in ints.
  std::size_t pages_offset() const { return sizeof(SpanEntry) / 4 * spans(); }
  std::size_t counters_offset() const {
    return pages_offset() + static_cast<std::size_t>(spans()) * page_stride;
  }
  std::size_t packed_size() const {
    return counters_offset() + static_cast<std::size_t>(decode_spans) * kCountersPerSpan;
  }
  // Steps of the same key are launched alike. 0: not to be recorded, since some span has more than
  // kDecodeTokens (lengths that hardly come again) or the table is too large to be refilled.
  std::uint64_t graph_key() const;
};

// Tokens of the longest decode span of a step. The prefill kernel has a CTA for each tile of query
// rows: the few rows that follow a cached prefix give a few CTAs, and each walks over the whole
// past. The decode kernel cuts the past into pieces, so it takes such spans too where one launch
// holds all of the step.
int most_decode_tokens(std::span<const SequenceSpan> sequences);

// Spans without tokens do not count.
SpanCounts count_spans(std::span<const SequenceSpan> sequences);

// All spans of a step, packed into one array of int32:
//   SpanEntry [spans] | pages [spans][page_stride] | counters [decode_spans][kCountersPerSpan],
//   zero
// Decode spans come first; spans without tokens are left out.
struct SpanPlan : SpanCounts {
  std::vector<std::int32_t> packed;
};

SpanPlan plan_spans(std::span<const SequenceSpan> sequences);

// Upper bound of packed ints of `sequences` spans of at most `max_pages` pages each.
std::size_t packed_ints(std::int64_t sequences, std::int64_t max_pages);

// Types of coded rows that have kernels of their own. Integer codes of all other pairs of widths
// share kernels that are told the widths (docs/adr/0032).
inline constexpr std::array<CacheTypes, 7> kOwnKernels{CacheType::kFp8,
                                                       CacheType::kQ8,
                                                       CacheType::kQ6,
                                                       CacheType::kQ4,
                                                       CacheTypes(CacheType::kQ8, CacheType::kQ6),
                                                       CacheTypes(CacheType::kQ8, CacheType::kQ4),
                                                       CacheTypes(CacheType::kQ6, CacheType::kQ4)};
bool has_own_kernels(CacheTypes types);

// How keys and values get from the cache into fragments of products.
enum class DecodeWay : std::uint8_t {
  kHalves,  // they are binary16
  kCodes,   // in registers: whole groups, few query rows
  kTile,    // by way of a tile of binary16
};

// What a decode kernel has code for: anything, or plain attention alone, which is one token a span
// that the kernel turns and writes, in whole heads of one size, without windows, soft caps, slopes
// or sinks; and of it one way to join pieces.
enum class DecodeCase : std::uint8_t {
  kAny,
  kPlainAlone,    // there is one piece, of few pages
  kPlainCluster,  // pieces are a cluster, of few pages
  kPlainParts,    // pieces leave parts in memory
};
inline constexpr int kFewPages = 32;  // a lane of a warp has each

// Which decode kernel a step takes.
struct DecodeForm {
  DecodeWay way = DecodeWay::kTile;
  int query_tiles = 2;    // of kFewRows rows
  bool clusters = false;  // it can join pieces as a cluster, on cards that have them
};

// `rows`: most query rows of a (span, kv head).
DecodeForm decode_form(CacheTypes types, int k_dim, int v_dim, int rows);

// One layer's decode launches.
struct DecodeShape {
  int spans = 0;
  int tokens = 0;  // most tokens of a span
  int kv_heads = 0;
  int group = 0;     // query heads of a kv head
  int max_keys = 0;  // bucket of the longest span
  int window = 0;
  int multiprocessors = 0;
  bool clusters = false;  // the pieces of a (span, kv head) may be a cluster
};

struct DecodeSplit {
  int row_tiles = 1;  // of kQueryTile rows, of a (span, kv head)
  int span_rows = 1;  // rows of partial results that a piece of a (span, kv head) has room for
  int spans_per_launch = 1;
  int heads_per_launch = 1;
  int pieces = 1;
  int piece_keys = kTileKeys;
  bool clusters = false;  // even_piece_keys of each span, and no parts in memory
  int warps = kUsualWarps;
};

DecodeSplit split_decode(const DecodeShape& shape);

// The keys of each piece that are worth prefetching from such a GEMM, whole runs of 16.
// `row_bytes`: bytes of a key and its value.
KeyRange key_prefetch_of_piece(const DecodeSplit& split, int kv_heads, int row_bytes,
                               KeyPrefetchSite site);

// The case of a launch of plain attention over spans of at most `pages`.
DecodeCase plain_case(const DecodeSplit& split, int pages);

// The same for the decode spans of a step by the kernel for compute capability 9.0 that reads keys
// once for kHopperPieceRows rows, where the other reads them for each kQueryTile.
struct HopperSplit {
  int row_tiles = 0;
  int pieces = 0;  // that are a cluster; 0: the other kernel
};

HopperSplit split_hopper(const DecodeShape& shape);

// First key that a span's pieces or tiles begin at: that of token `token`'s window, rounded down.
BL_HD inline int first_key_of(int position, int window) {
  const int first = window > 0 && position >= window ? position + 1 - window : 0;
  return first / kTileKeys * kTileKeys;
}

// Rows of partial results (of v_dim + 2 floats) that the decode launches of a step need at most.
std::int64_t decode_partial_rows(std::int64_t tokens, std::int64_t heads, int multiprocessors);

}  // namespace bl::cuda
