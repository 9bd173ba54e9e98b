#include "backend/cpu/attention_simd.h"
#include "backend/cpu/simd/vec_math.h"

namespace bl::cpu::BL_ISA {
namespace {

constexpr float kNever = -1e30f;  // score of a key that a row does not see

// Query rows, and vectors per row, that are held in registers: there are 32 registers with AVX-512,
// else 16 of half the width. Fewer rows use more vectors to hide the latency of fma.
constexpr int kRows = 6;
constexpr int vectors_at_once(int rows) {
#if defined(__AVX512F__)
  static_cast<void>(rows);
  return 4;
#else
  return rows == 1 ? 3 : rows == 2 ? 2 : 1;
#endif
}

constexpr float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Keys and values are read as floats, or as the fp16 numbers of the cache.
F32x16 load_as(const float* p) { return F32x16::load(p); }
F32x16 load_as(const std::uint16_t* p) { return F32x16::load_half(p); }

// Prefetches the next tile line by line while an fp16 tile is read in place. Requesting all of it
// at once would occupy every fill buffer of the L1 cache, and loads would wait. `ahead` is the
// distance in bytes to the same elements of the next tile; 0 if there is none.
template <int Vectors>
void fetch_ahead(const std::uint16_t* read, std::ptrdiff_t ahead) {
  prefetch_bytes(reinterpret_cast<const std::byte*>(read) + ahead, Vectors * 32);
}
template <int Vectors>
void fetch_ahead(const float*, std::ptrdiff_t) {}

// scores[r][v · 16 …] = Σ_d q[r][d] · keys[v][d][16 …], summed in order of d.
template <class Element>
struct ScoreArgs {
  const float* q;
  const Element* keys;
  float* scores;
  int dim;
  std::ptrdiff_t ahead;
};

template <int Rows, int Vectors, class Element>
void score(const ScoreArgs<Element>& a) {
  F32x16 acc[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) acc[r][v] = F32x16::splat(0.0f);
  }
  const std::int64_t dim = a.dim;
  for (std::int64_t d = 0; d < dim; ++d) {
    fetch_ahead<Vectors>(a.keys + d * Vectors * 16, a.ahead);
    F32x16 key[Vectors];
    for (int v = 0; v < Vectors; ++v) key[v] = load_as(a.keys + (v * dim + d) * 16);
    for (int r = 0; r < Rows; ++r) {
      const F32x16 x = F32x16::splat(a.q[r * dim + d]);
      for (int v = 0; v < Vectors; ++v) acc[r][v] = fma(x, key[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) acc[r][v].store(a.scores + r * kTileKeys + v * 16);
  }
}

// values[r][v · 16 …] = factor[r] · values + Σ_k p[r][k] · rows[k][v · 16 …], summed in order of k.
template <class Element>
struct AddArgs {
  const float* p;
  const Element* rows;
  std::int64_t row_stride;
  int keys;
  const float* factor;
  float* values;
  std::int64_t value_stride;
  std::ptrdiff_t ahead;
};

template <int Rows, int Vectors, class Element>
void add_rows(const AddArgs<Element>& a) {
  F32x16 acc[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    const F32x16 factor = F32x16::splat(a.factor[r]);
    for (int v = 0; v < Vectors; ++v) {
      acc[r][v] = F32x16::load(a.values + r * a.value_stride + v * 16) * factor;
    }
  }
  for (int k = 0; k < a.keys; ++k) {
    fetch_ahead<Vectors>(a.rows + k * a.row_stride, a.ahead);
    F32x16 row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = load_as(a.rows + k * a.row_stride + v * 16);
    for (int r = 0; r < Rows; ++r) {
      const F32x16 p = F32x16::splat(a.p[r * kTileKeys + k]);
      for (int v = 0; v < Vectors; ++v) acc[r][v] = fma(p, row[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) acc[r][v].store(a.values + r * a.value_stride + v * 16);
  }
}

// Calls the instance for n = 1 … N, a count that is known only at run time.
template <int N, template <int> class Call, class Args>
void pick(int n, const Args& args) {
  if constexpr (N > 1) {
    if (n < N) return pick<N - 1, Call>(n, args);
  }
  Call<N>::run(args);
}

template <int Rows>
struct ScoreVectors {
  template <int Vectors>
  struct Call {
    template <class Element>
    static void run(const ScoreArgs<Element>& a) {
      score<Rows, Vectors>(a);
    }
  };
};
template <class Element>
struct ScoreCall {
  ScoreArgs<Element> args;
  int vectors;
};
template <int Rows>
struct ScoreRows {
  template <class Element>
  static void run(const ScoreCall<Element>& c) {
    ScoreArgs<Element> args = c.args;
    constexpr int kStep = vectors_at_once(Rows);
    for (int v = 0; v < c.vectors; v += kStep) {
      const int n = c.vectors - v < kStep ? c.vectors - v : kStep;
      pick<kStep, ScoreVectors<Rows>::template Call>(n, args);
      args.keys += std::int64_t{kStep} * 16 * args.dim;
      args.scores += kStep * 16;
    }
  }
};

template <int Rows>
struct AddVectors {
  template <int Vectors>
  struct Call {
    template <class Element>
    static void run(const AddArgs<Element>& a) {
      add_rows<Rows, Vectors>(a);
    }
  };
};
template <class Element>
struct AddCall {
  AddArgs<Element> args;
  int vectors;
};
template <int Rows>
struct AddRows {
  template <class Element>
  static void run(const AddCall<Element>& c) {
    AddArgs<Element> args = c.args;
    constexpr int kStep = vectors_at_once(Rows);
    for (int v = 0; v < c.vectors; v += kStep) {
      const int n = c.vectors - v < kStep ? c.vectors - v : kStep;
      pick<kStep, AddVectors<Rows>::template Call>(n, args);
      args.rows += kStep * 16;
      args.values += kStep * 16;
    }
  }
};

struct Tile {
  std::int32_t first = 0;  // position of its first key
  int keys = 0;            // keys up to the last one that any row sees
  int vectors = 0;
};

Tile tile_up_to(std::int32_t last, std::int32_t first) {
  const int keys = last - first + 1 < kTileKeys ? last - first + 1 : kTileKeys;
  return {first, keys, (keys + 15) / 16};
}

// The keys of a tile that a row sees, as indices within the tile.
struct Visible {
  int first = 0;
  int last = 0;
  bool none(int keys) const { return last < 0 || first >= keys; }
};

Visible visible_to(const QueryBlock& block, int row, std::int32_t first_key) {
  const std::int32_t position = block.position[row];
  const int first = block.window > 0 ? position + 1 - block.window - first_key : 0;
  return {first > 0 ? first : 0, position - first_key};
}

class Weigher {
 public:
  Weigher(const QueryBlock& block, const Tile& tile, int row)
      : block_(block), tile_(tile), row_(row), visible_(visible_to(block, row, tile.first)) {}

  // Replaces scores by weights 2^(score − top), and updates the row's top and weight. Returns the
  // factor by which the row's earlier sums must be multiplied.
  float run(float* scores, float* top, float* weight) const {
    const F32x16 never = F32x16::splat(kNever);
    if (visible_.none(tile_.keys)) {
      for (int v = 0; v < tile_.vectors; ++v) F32x16::splat(0.0f).store(scores + v * 16);
      return 1.0f;
    }
    F32x16 highest = never;
    for (int v = 0; v < tile_.vectors; ++v) {
      const F32x16 s = hide(v, finished(v, F32x16::load(scores + v * 16)), never);
      s.store(scores + v * 16);
      highest = max(s, highest);
    }
    const float tile_top = max_lane(highest);
    const float new_top = tile_top > *top ? tile_top : *top;
    const F32x16 shift = F32x16::splat(new_top);
    F32x16 total = F32x16::splat(0.0f);
    for (int v = 0; v < tile_.vectors; ++v) {
      const F32x16 p = hide(v, exp2(F32x16::load(scores + v * 16) - shift), F32x16::splat(0.0f));
      p.store(scores + v * 16);
      total = total + p;
    }
    float lanes[16];
    exp2(F32x16::splat(*top - new_top)).store(lanes);
    const float factor = lanes[0];
    *weight = *weight * factor + sum(total);
    *top = new_top;
    return factor;
  }

 private:
  F32x16 finished(int v, F32x16 s) const {
    if (block_.softcap > 0.0f) s = F32x16::splat(block_.softcap) * tanh(s);
    if (block_.slope != nullptr) {
      const float first = static_cast<float>(tile_.first + v * 16 - block_.position[row_]);
      const F32x16 distance = F32x16::load(kLanes) + F32x16::splat(first);
      s = fma(F32x16::splat(block_.slope[row_]), distance, s);
    }
    return s;
  }
  F32x16 hide(int v, F32x16 x, F32x16 hidden) const {
    if (visible_.first <= v * 16 && visible_.last >= v * 16 + 15) return x;
    const F32x16 lane = F32x16::load(kLanes) + F32x16::splat(static_cast<float>(v * 16));
    x = select_less(lane, F32x16::splat(static_cast<float>(visible_.first)), hidden, x);
    return select_less(F32x16::splat(static_cast<float>(visible_.last)), lane, hidden, x);
  }

  const QueryBlock& block_;
  const Tile& tile_;
  int row_;
  Visible visible_;
};

// Value rows of a tile: in the cache, or decoded to scratch.
template <class Element>
struct Values {
  const Element* data = nullptr;
  std::int64_t stride = 0;
};

// The addresses of a tile's runs of keys and of its rows of values.
const std::byte* runs_of(const KeySpan& span, const Tile& tile) {
  const int offset = tile.first - span.first;
  return span.k_head[offset / kPageSlots] +
         static_cast<std::size_t>(offset % kPageSlots / kLaneSlots) * kLaneSlots * span.k.bytes;
}
const std::byte* rows_of(const KeySpan& span, const Tile& tile) {
  const int offset = tile.first - span.first;
  return span.v_head[offset / kPageSlots] +
         static_cast<std::size_t>(offset % kPageSlots) * span.v.bytes;
}

// The tile that the thread reads next: the next one of this span, or the first of the following
// span.
class NextTile {
 public:
  NextTile(const KeySpan& span, const Tile& tile) {
    const std::int32_t first = tile.first + kTileKeys;
    if (first <= span.last && first < span.first + kSpanKeys) {
      set(span, tile_up_to(span.last, first));
    } else if (span.next != nullptr) {
      set(*span.next, first_tile(*span.next));
    }
  }

  // The first tile that has a key which some row sees.
  static Tile first_tile(const KeySpan& span) {
    const std::int32_t oldest = span.oldest / kTileKeys * kTileKeys;
    return tile_up_to(span.last, oldest > span.first ? oldest : span.first);
  }

  // Prefetches those of the runs of keys, or rows of values, [begin, end) that exist.
  void fetch_runs(int begin, int end) const {
    if (end > vectors_) end = vectors_;
    fetch(runs_, run_bytes_, begin, end);
  }
  void produce_rows(int begin, int end) const {
    if (end > keys_) end = keys_;
    fetch(rows_, row_bytes_, begin, end);
  }
  std::ptrdiff_t from_runs(const std::byte* runs) const { return keys_ == 0 ? 0 : runs_ - runs; }
  std::ptrdiff_t from_rows(const std::byte* rows) const { return keys_ == 0 ? 0 : rows_ - rows; }

 private:
  void set(const KeySpan& span, const Tile& tile) {
    runs_ = runs_of(span, tile);
    rows_ = rows_of(span, tile);
    run_bytes_ = kLaneSlots * span.k.bytes;
    row_bytes_ = span.v.bytes;
    vectors_ = tile.vectors;
    keys_ = tile.keys;
  }
  static void fetch(const std::byte* from, std::size_t bytes, int begin, int end) {
    if (begin >= end) return;
    prefetch_bytes(from + static_cast<std::size_t>(begin) * bytes,
                   static_cast<std::size_t>(end - begin) * bytes);
  }

  const std::byte* runs_ = nullptr;
  const std::byte* rows_ = nullptr;
  std::size_t run_bytes_ = 0;
  std::size_t row_bytes_ = 0;
  int vectors_ = 0;
  int keys_ = 0;  // 0: there is no next tile
};

const float* tile_keys(const KeySpan& span, const Tile& tile, const NextTile& next, float* room) {
  const std::byte* runs = runs_of(span, tile);
  if (span.k.code == KvRow::Code::kF32) {
    next.fetch_runs(0, kTileKeys / kLaneSlots);
    return reinterpret_cast<const float*>(runs);
  }
  for (int v = 0; v < tile.vectors; ++v) {
    next.fetch_runs(v, v + 1);
    decode_keys(span.k, runs + static_cast<std::size_t>(v) * kLaneSlots * span.k.bytes,
                room + static_cast<std::int64_t>(v) * 16 * span.k.dim);
  }
  next.fetch_runs(tile.vectors, kTileKeys / kLaneSlots);
  return room;
}

Values<float> tile_values(const KeySpan& span, const Tile& tile, const NextTile& next,
                          float* room) {
  const std::byte* rows = rows_of(span, tile);
  if (span.v.code == KvRow::Code::kF32 && span.v.dim % 16 == 0) {
    next.produce_rows(0, kTileKeys);
    return {reinterpret_cast<const float*>(rows), span.v.dim};
  }
  const std::int64_t stride = (span.v.dim + 15) / 16 * 16;
  for (int k = 0; k < tile.keys; ++k) {
    next.produce_rows(k, k + 1);
    decode_value(span.v, rows + static_cast<std::size_t>(k) * span.v.bytes, room + k * stride);
  }
  next.produce_rows(tile.keys, kTileKeys);
  return {room, stride};
}

template <class Element>
struct TileData {
  const Element* keys;
  Values<Element> values;
  float* scores;
  std::ptrdiff_t keys_ahead = 0;
  std::ptrdiff_t values_ahead = 0;
};

template <class Element>
void attend_tile(const QueryBlock& block, const KeySpan& span, const Tile& whole,
                 const TileData<Element>& data, const PartialRows& out) {
  for (int first = 0; first < block.rows; first += kRows) {
    const int rows = block.rows - first < kRows ? block.rows - first : kRows;
    const std::int32_t last = block.position[first + rows - 1];
    if (last < whole.first) continue;
    const Tile tile = tile_up_to(last, whole.first);
    pick<kRows, ScoreRows>(
        rows, ScoreCall<Element>{{block.q + std::int64_t{first} * span.k.dim, data.keys,
                                  data.scores, span.k.dim, data.keys_ahead},
                                 tile.vectors});
    float factor[kRows];
    for (int r = 0; r < rows; ++r) {
      factor[r] =
          Weigher(block, tile, first + r)
              .run(data.scores + r * kTileKeys, out.top + first + r, out.weight + first + r);
    }
    pick<kRows, AddRows>(
        rows, AddCall<Element>{
                  {data.scores, data.values.data, data.values.stride, tile.keys, factor,
                   out.value + first * out.value_stride, out.value_stride, data.values_ahead},
                  (span.v.dim + 15) / 16});
  }
}

}  // namespace

void prepare_query(const float* x, float factor, bool rotated, int dim, float* out) {
  for (int i = 0; i < dim; ++i) out[i] = x[i] * factor;
  if (rotated) rotate_head(out, dim);
}

void attend_span(const QueryBlock& block, const KeySpan& span, const AttendRoom& room,
                 const PartialRows& out) {
  const int padded = (span.v.dim + 15) / 16 * 16;
  for (int r = 0; r < block.rows; ++r) {
    out.top[r] = kNever;
    out.weight[r] = 0.0f;
    for (int i = 0; i < padded; ++i) out.value[r * out.value_stride + i] = 0.0f;
  }
  // fp16 data that is read only once is converted during the multiplication, without going through
  // scratch.
  const bool in_place =
      block.rows <= kRows && span.k.code == KvRow::Code::kF16 && span.v.dim % 16 == 0;
  bool fetched = span.fetched;
  for (Tile tile = NextTile::first_tile(span);
       tile.first <= span.last && tile.first < span.first + kSpanKeys;
       tile = tile_up_to(span.last, tile.first + kTileKeys)) {
    const NextTile next(span, tile);
    if (!fetched) {  // the values, which are read after the keys
      prefetch_bytes(rows_of(span, tile), static_cast<std::size_t>(tile.keys) * span.v.bytes);
    }
    fetched = true;
    if (in_place) {
      const std::byte* runs = runs_of(span, tile);
      const std::byte* rows = rows_of(span, tile);
      attend_tile<std::uint16_t>(block, span, tile,
                                 {reinterpret_cast<const std::uint16_t*>(runs),
                                  {reinterpret_cast<const std::uint16_t*>(rows), span.v.dim},
                                  room.scores,
                                  next.from_runs(runs),
                                  next.from_rows(rows)},
                                 out);
      continue;
    }
    const float* keys = tile_keys(span, tile, next, room.keys);
    const Values<float> values = tile_values(span, tile, next, room.values);
    attend_tile<float>(block, span, tile, {keys, values, room.scores}, out);
  }
}

void join(const PartialRows& earlier, const PartialRows& later, int rows, int dim) {
  for (int r = 0; r < rows; ++r) {
    const float top = earlier.top[r] > later.top[r] ? earlier.top[r] : later.top[r];
    float a[16];
    float b[16];
    exp2(F32x16::splat(earlier.top[r] - top)).store(a);
    exp2(F32x16::splat(later.top[r] - top)).store(b);
    earlier.top[r] = top;
    earlier.weight[r] = earlier.weight[r] * a[0] + later.weight[r] * b[0];
    float* to = earlier.value + r * earlier.value_stride;
    const float* from = later.value + r * later.value_stride;
    for (int i = 0; i < dim; i += 16) {
      const F32x16 old = F32x16::load(to + i) * F32x16::splat(a[0]);
      fma(F32x16::load(from + i), F32x16::splat(b[0]), old).store(to + i);
    }
  }
}

void finish(const FinishRow& row) {
  float factor = 1.0f / row.weight;
  if (row.sink != nullptr) {
    const float top = row.top > *row.sink ? row.top : *row.sink;
    float own[16];
    float sink[16];
    exp2(F32x16::splat(row.top - top)).store(own);
    exp2(F32x16::splat(*row.sink - top)).store(sink);
    factor = own[0] / (row.weight * own[0] + sink[0]);
  }
  for (int i = 0; i < row.dim; ++i) row.out[i] = row.value[i] * factor;
  if (row.rotated) rotate_head(row.out, row.dim);
}

}  // namespace bl::cpu::BL_ISA
