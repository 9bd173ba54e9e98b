#include "backend/cpu/attention.h"

#include <algorithm>
#include <array>
#include <optional>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_writer.h"
#include "backend/cpu/piece_queue.h"
#include "backend/cpu/rotate_heads.h"
#include "base/check.h"

namespace bl::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// Sequences with few new tokens and many keys split their key spans among the threads. At most this
// many rows of partial results per head are held at once; then they are joined.
constexpr std::int64_t kSplitRows = 128;
// Minimum number of scores and elements written that is worth waking threads for.
constexpr std::int64_t kWorthSharing = 512;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Layout of a thread's scratch: the offsets of its parts, in floats.
struct Room {
  std::int64_t k_dim, v_dim;  // v_dim rounded up to 16

  std::int64_t q() const { return 0; }
  std::int64_t keys() const { return q() + kBlockRows * k_dim; }
  std::int64_t values() const { return keys() + kTileKeys * k_dim; }
  std::int64_t scores() const { return values() + kTileKeys * v_dim; }
  std::int64_t partial(int which) const {
    return scores() + kBlockRows * kTileKeys + which * kBlockRows * (v_dim + 2);
  }
  std::int64_t positions() const { return partial(2); }
  std::int64_t slopes() const { return positions() + kBlockRows; }
  std::int64_t write() const { return slopes() + kBlockRows; }
  std::int64_t floats() const {
    return round_up(write() + KvWriter::room_floats(std::max(k_dim, v_dim)), 16);
  }
};

PartialRows partial_rows(float* at, std::int64_t rows, std::int64_t v_dim) {
  return {.top = at, .weight = at + rows, .value = at + 2 * rows, .value_stride = v_dim};
}

PartialRows from_row(const PartialRows& all, std::int64_t row) {
  return {.top = all.top + row,
          .weight = all.weight + row,
          .value = all.value + row * all.value_stride,
          .value_stride = all.value_stride};
}

// A block of rows of one sequence that read the same kv head. Row r is token r / group, query head
// r % group within the group.
struct Block {
  const SequenceSpan* sequence = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t first_row = 0;
  int rows = 0;
};

class AttentionRun {
 public:
  // `before`, if not null, is work that remains to be done on the new tokens' heads first; then
  // blocks_are_single() must hold.
  AttentionRun(ExecContext& ctx, const AttentionArgs& args, const RopeAndWriteArgs* before)
      : ctx_(ctx),
        args_(args),
        before_(before),
        kernels_(kernels_of(ctx).attention),
        k_(row_format(args.cache.layout.k_row())),
        v_(row_format(args.cache.layout.v_row())),
        k_rotated_(args.cache.layout.k_row().rotated()),
        v_rotated_(args.cache.layout.v_row().rotated()),
        group_(args.q.shape[1] / args.cache.layout.kv_heads),
        room_{k_.dim, round_up(v_.dim, 16)} {
    const int threads = ctx.threads != nullptr ? ctx.threads->threads() : 1;
    rooms_ = ctx.scratch->take_f32({threads, room_.floats()});
    if (before_ != nullptr) writer_.emplace(ctx, before_->write);
  }

  // Whether the rows of each sequence and kv head fit one block, as they do if few tokens are new.
  static bool blocks_are_single(const AttentionArgs& args) {
    const std::int64_t group = args.q.shape[1] / args.cache.layout.kv_heads;
    return std::all_of(args.sequences.begin(), args.sequences.end(),
                       [&](const SequenceSpan& s) { return s.tokens * group <= kBlockRows; });
  }

  void run() {
    if (blocks_are_single(args_)) {
      run_single_blocks();
    } else {
      run_blocks();
    }
    if (std::any_of(args_.sequences.begin(), args_.sequences.end(),
                    [&](const SequenceSpan& s) { return splits(s); })) {
      run_splits();
    }
  }

 private:
  std::int64_t kv_heads() const { return args_.cache.layout.kv_heads; }
  std::int64_t rows_of(const SequenceSpan& s) const { return s.tokens * group_; }
  static std::int64_t keys_of(const SequenceSpan& s) { return std::int64_t{s.past} + s.tokens; }
  static std::int64_t spans_of(const SequenceSpan& s) {
    return (keys_of(s) + kSpanKeys - 1) / kSpanKeys;
  }
  // Whether the sequence is one block of rows with several key spans, which the threads then share.
  bool splits(const SequenceSpan& s) const {
    return s.tokens > 0 && rows_of(s) <= kBlockRows && spans_of(s) > 1;
  }
  std::int64_t blocks_of(const SequenceSpan& s) const {
    return splits(s) ? 0 : (rows_of(s) + kBlockRows - 1) / kBlockRows;
  }

  float* room(int thread) const { return rooms_.row<float>(thread); }
  PartialRows room_partial(int thread, int which) const {
    return partial_rows(room(thread) + room_.partial(which), kBlockRows, room_.v_dim);
  }

  QueryBlock prepare(const Block& block, int thread) const {
    float* at = room(thread);
    auto* position = reinterpret_cast<std::int32_t*>(at + room_.positions());
    float* slope = args_.alibi_slopes.empty() ? nullptr : at + room_.slopes();
    const bool capped = args_.softcap > 0.0f;
    const float factor = capped ? args_.scale / args_.softcap : args_.scale * kLog2E;
    for (int r = 0; r < block.rows; ++r) {
      const std::int64_t token = (block.first_row + r) / group_;
      const std::int64_t head = block.kv_head * group_ + (block.first_row + r) % group_;
      position[r] = block.sequence->past + static_cast<std::int32_t>(token);
      if (slope != nullptr) slope[r] = args_.alibi_slopes.as<float>()[head] * kLog2E;
      kernels_.prepare_query(
          args_.q.row<float>(block.sequence->first_token + token) + head * k_.dim, factor,
          k_rotated_, k_.dim, at + room_.q() + r * room_.k_dim);
    }
    return {.rows = block.rows,
            .q = at + room_.q(),
            .position = position,
            .slope = slope,
            .softcap = capped ? args_.softcap * kLog2E : 0.0f,
            .window = args_.window};
  }

  KeySpan locate(const Block& block, std::int64_t span) const {
    const SequenceSpan& s = *block.sequence;
    const std::int64_t first = s.past + block.first_row / group_;
    const std::int64_t last = s.past + (block.first_row + block.rows - 1) / group_;
    const std::int64_t oldest = args_.window > 0 ? first + 1 - args_.window : 0;
    KeySpan keys{.k = k_,
                 .v = v_,
                 .first = static_cast<std::int32_t>(span * kSpanKeys),
                 .oldest = static_cast<std::int32_t>(std::max<std::int64_t>(0, oldest)),
                 .last = static_cast<std::int32_t>(last)};
    const std::int64_t pages = pages_for(keys_of(s));
    const auto heads = static_cast<std::size_t>(kv_heads());
    const auto head = static_cast<std::size_t>(block.kv_head);
    for (std::int64_t i = 0; i < kSpanPages && span * kSpanPages + i < pages; ++i) {
      const auto page = static_cast<std::size_t>(s.pages[span * kSpanPages + i]);
      const std::size_t rows = (page * heads + head) * kPageSlots;
      keys.k_head[i] = args_.cache.k + rows * k_.bytes;
      keys.v_head[i] = args_.cache.v + rows * v_.bytes;
    }
    return keys;
  }

  void attend(const QueryBlock& query, const KeySpan& keys, int thread,
              const PartialRows& out) const {
    float* at = room(thread);
    kernels_.attend_span(
        query, keys,
        {.keys = at + room_.keys(), .values = at + room_.values(), .scores = at + room_.scores()},
        out);
  }

  void finish(const Block& block, const PartialRows& rows) const {
    for (int r = 0; r < block.rows; ++r) {
      const std::int64_t token = block.sequence->first_token + (block.first_row + r) / group_;
      const std::int64_t head = block.kv_head * group_ + (block.first_row + r) % group_;
      float sink = 0.0f;
      if (!args_.sinks.empty()) sink = args_.sinks.as<float>()[head] * kLog2E;
      kernels_.finish({.value = rows.value + r * rows.value_stride,
                       .top = rows.top[r],
                       .weight = rows.weight[r],
                       .sink = args_.sinks.empty() ? nullptr : &sink,
                       .rotated = v_rotated_,
                       .dim = v_.dim,
                       .out = args_.out.row<float>(token) + head * v_.dim});
    }
  }

  // Returns the range of spans that some row of the block can see.
  std::pair<std::int64_t, std::int64_t> visible_spans(const Block& block) const {
    const std::int64_t first = block.sequence->past + block.first_row / group_;
    const std::int64_t last = block.sequence->past + (block.first_row + block.rows - 1) / group_;
    const std::int64_t oldest =
        args_.window > 0 ? std::max<std::int64_t>(0, first + 1 - args_.window) : 0;
    return {oldest / kSpanKeys, last / kSpanKeys + 1};
  }

  void run_block(const Block& block, int thread) const {
    const QueryBlock query = prepare(block, thread);
    const auto [begin, end] = visible_spans(block);
    const PartialRows all = room_partial(thread, 0);
    attend(query, locate(block, begin), thread, all);
    for (std::int64_t span = begin + 1; span < end; ++span) {
      const PartialRows later = room_partial(thread, 1);
      attend(query, locate(block, span), thread, later);
      kernels_.join(all, later, block.rows, v_.dim);
    }
    finish(block, all);
  }

  // A piece of work: a block and one of its spans.
  struct Piece {
    Block block;
    std::int64_t span = 0;
    bool attends = false;
  };

  // Runs body(thread, i, piece, keys) for all pieces. Each thread takes consecutive pieces, and
  // prefetches the keys and values of the next one while it works.
  template <class PieceAt, class Body>
  void for_pieces(std::int64_t count, bool shared, const PieceAt& piece_at,
                  const Body& body) const {
    const auto run = [&](int thread, std::int64_t i, bool followed, std::int64_t& fetched) {
      const Piece piece = piece_at(i);
      KeySpan keys;
      KeySpan next;
      if (piece.attends) {
        keys = locate(piece.block, piece.span);
        keys.fetched = fetched == i;
        const Piece after = followed ? piece_at(i + 1) : Piece{};
        if (after.attends) {
          next = locate(after.block, after.span);
          keys.next = &next;
          fetched = i + 1;
        }
      }
      body(thread, i, piece, keys);
    };
    if (ctx_.threads == nullptr || !shared) {
      std::int64_t fetched = -1;
      for (std::int64_t i = 0; i < count; ++i) run(0, i, i + 1 < count, fetched);
      return;
    }
    PieceQueue queue(count, ctx_.threads->threads());
    ctx_.threads->run_any([&](int thread) {
      std::int64_t fetched = -1;
      for (std::int64_t i = 0; (i = queue.take(thread)) >= 0;) {
        run(thread, i, queue.followed(i), fetched);
      }
    });
  }

  // Runs sequences of one block each, by kv head. For those whose spans are split, does only
  // `before`.
  void run_single_blocks() const {
    const std::int64_t count = static_cast<std::int64_t>(args_.sequences.size()) * kv_heads();
    std::int64_t work = 0;
    for (const SequenceSpan& s : args_.sequences) {
      work += splits(s) ? 0 : s.tokens * args_.q.shape[1] * keys_of(s);
      if (before_ != nullptr) work += s.tokens * kv_heads() * (k_.dim + v_.dim);
    }
    const auto piece_at = [&](std::int64_t i) {
      const SequenceSpan& s = args_.sequences[static_cast<std::size_t>(i / kv_heads())];
      const Block block{
          .sequence = &s, .kv_head = i % kv_heads(), .rows = static_cast<int>(rows_of(s))};
      return Piece{.block = block, .attends = block.rows > 0 && !splits(s)};
    };
    for_pieces(count, work >= kWorthSharing, piece_at,
               [&](int thread, std::int64_t, const Piece& piece, const KeySpan& keys) {
                 if (before_ != nullptr) rotate_and_write(piece.block, thread);
                 if (!piece.attends) return;
                 const QueryBlock query = prepare(piece.block, thread);
                 const PartialRows all = room_partial(thread, 0);
                 attend(query, keys, thread, all);
                 finish(piece.block, all);
               });
  }

  // Does `before` for one kv head: rotates its new keys and its queries, and writes keys and
  // values.
  void rotate_and_write(const Block& block, int thread) const {
    const ElementKernels& kernels = kernels_of(ctx_).element;
    for (std::int64_t i = 0; i < block.sequence->tokens; ++i) {
      const std::int64_t t = block.sequence->first_token + i;
      const std::array<HeadRange, 2> heads{
          HeadRange{args_.q.row<float>(t) + block.kv_head * group_ * k_.dim, group_},
          HeadRange{before_->k.x.row<float>(t) + block.kv_head * k_.dim, 1}};
      rotate_heads(kernels, before_->q, t, heads);
      writer_->write(t, block.kv_head, room(thread) + room_.write());
    }
  }

  void run_blocks() const {
    std::int64_t count = 0;
    std::int64_t work = 0;
    for (const SequenceSpan& s : args_.sequences) {
      count += blocks_of(s) * kv_heads();
      work += blocks_of(s) > 0 ? s.tokens * args_.q.shape[1] * keys_of(s) : 0;
    }
    for_items(ctx_, {.count = count, .shared = work >= kWorthSharing},
              [&](int thread, std::int64_t item) {
                const SequenceSpan* s = args_.sequences.data();
                for (; item >= blocks_of(*s) * kv_heads(); ++s) item -= blocks_of(*s) * kv_heads();
                const std::int64_t first_row = item / kv_heads() * kBlockRows;
                run_block({.sequence = s,
                           .kv_head = item % kv_heads(),
                           .first_row = first_row,
                           .rows = static_cast<int>(
                               std::min<std::int64_t>(kBlockRows, rows_of(*s) - first_row))},
                          thread);
              });
  }

  // Runs the sequences whose spans are split, in batches whose rows fit the buffers.
  void run_splits() const {
    const std::int64_t capacity = kSplitRows * args_.q.shape[1];
    const std::int64_t floats = capacity * (room_.v_dim + 2);
    const ArenaScope scope(*ctx_.scratch);
    const SplitRows buffers{
        .joined = partial_rows(ctx_.scratch->take_f32({floats}).as<float>(), capacity, room_.v_dim),
        .partial =
            partial_rows(ctx_.scratch->take_f32({floats}).as<float>(), capacity, room_.v_dim),
        .capacity = capacity};
    const SequenceSpan* begin = args_.sequences.data();
    const SequenceSpan* const end = begin + args_.sequences.size();
    while (begin != end) {
      std::int64_t rows = 0;
      const SequenceSpan* next = begin;
      for (; next != end; ++next) {
        const std::int64_t more = splits(*next) ? rows_of(*next) * kv_heads() : 0;
        if (rows + more > capacity) break;
        rows += more;
      }
      run_split_batch({begin, static_cast<std::size_t>(next - begin)}, rows, buffers);
      begin = next;
    }
  }

  struct SplitRows {
    PartialRows joined;   // [rows of a batch]: a sequence's kv heads, one after the other
    PartialRows partial;  // [spans of a wave][rows of a batch]
    std::int64_t capacity;
  };

  // The sequence and kv head of item `index` of a batch, and its first row in the batch.
  struct SplitItem {
    Block block;
    std::int64_t row = 0;
  };
  SplitItem split_item(std::span<const SequenceSpan> batch, std::int64_t index) const {
    std::int64_t row = 0;
    for (const SequenceSpan& s : batch) {
      if (!splits(s)) continue;
      if (index < kv_heads()) {
        return {{.sequence = &s, .kv_head = index, .rows = static_cast<int>(rows_of(s))},
                row + index * rows_of(s)};
      }
      index -= kv_heads();
      row += rows_of(s) * kv_heads();
    }
    return {};
  }

  void run_split_batch(std::span<const SequenceSpan> batch, std::int64_t rows,
                       const SplitRows& buffers) const {
    if (rows == 0) return;
    std::int64_t items = 0;
    std::int64_t spans = 0;
    for (const SequenceSpan& s : batch) {
      if (!splits(s)) continue;
      items += kv_heads();
      spans = std::max(spans, spans_of(s));
    }
    const std::int64_t wave = buffers.capacity / rows;
    for (std::int64_t first = 0; first < spans; first += wave) {
      const std::int64_t count = std::min(wave, spans - first);
      const auto piece_at = [&](std::int64_t i) {
        Piece piece{.block = split_item(batch, i % items).block, .span = first + i / items};
        const auto [begin, end] = visible_spans(piece.block);
        piece.attends = begin <= piece.span && piece.span < end;
        return piece;
      };
      for_pieces(items * count, true, piece_at,
                 [&](int thread, std::int64_t i, const Piece& piece, const KeySpan& keys) {
                   if (!piece.attends) return;
                   const std::int64_t row = split_item(batch, i % items).row;
                   attend(prepare(piece.block, thread), keys, thread,
                          from_row(buffers.partial, i / items * rows + row));
                 });
      for_items(ctx_, {.count = items, .shared = rows * count >= 64}, [&](int, std::int64_t i) {
        join_wave(split_item(batch, i), {first, first + count}, rows, buffers);
      });
    }
  }

  // Adds the spans of a wave to the earlier ones, in order, and finishes rows that are complete.
  void join_wave(const SplitItem& item, std::pair<std::int64_t, std::int64_t> wave,
                 std::int64_t rows, const SplitRows& buffers) const {
    const auto [begin, end] = visible_spans(item.block);
    const PartialRows joined = from_row(buffers.joined, item.row);
    const int count = item.block.rows;
    for (std::int64_t span = std::max(begin, wave.first); span < std::min(end, wave.second);
         ++span) {
      const PartialRows one = from_row(buffers.partial, (span - wave.first) * rows + item.row);
      if (span == begin) {
        std::copy_n(one.top, count, joined.top);
        std::copy_n(one.weight, count, joined.weight);
        std::copy_n(one.value, count * room_.v_dim, joined.value);
      } else {
        kernels_.join(joined, one, count, v_.dim);
      }
    }
    if (end > wave.first && end <= wave.second) finish(item.block, joined);
  }

  ExecContext& ctx_;
  const AttentionArgs& args_;
  const RopeAndWriteArgs* before_;
  std::optional<KvWriter> writer_;
  const AttentionKernels& kernels_;
  RowFormat k_;
  RowFormat v_;
  bool k_rotated_;
  bool v_rotated_;
  std::int64_t group_;
  Room room_;
  TensorView rooms_;
};

}  // namespace

std::size_t attention_scratch_bytes(std::int64_t heads, std::int64_t head_dim, int threads) {
  const Room room{head_dim, round_up(head_dim, 16)};
  const std::int64_t split = kSplitRows * heads * (room.v_dim + 2);
  return arena_bytes(DType::kF32, threads * room.floats()) + 2 * arena_bytes(DType::kF32, split);
}

void attention(ExecContext& ctx, const AttentionArgs& args) {
  const ArenaScope scope(*ctx.scratch);
  AttentionRun(ctx, args, nullptr).run();
}

void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& before,
                       const AttentionArgs& args) {
  BL_CHECK(before.q.x.data == args.q.data && before.write.k.data == before.k.x.data);
  if (!AttentionRun::blocks_are_single(args)) {
    rope(ctx, before.q);
    rope(ctx, before.k);
    kv_write(ctx, before.write);
    attention(ctx, args);
    return;
  }
  const ArenaScope scope(*ctx.scratch);
  AttentionRun(ctx, args, &before).run();
}

}  // namespace bl::cpu
