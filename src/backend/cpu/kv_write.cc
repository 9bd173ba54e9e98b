#include <algorithm>
#include <cstring>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"

namespace bl::cpu {
namespace {

// Sixteen slots' code atoms lie side by side: the lane's first, then one every sixteen.
template <class Atom>
void spread(const std::byte* row, std::size_t count, std::byte* lane) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(lane + i * kLaneSlots * sizeof(Atom), row + i * sizeof(Atom), sizeof(Atom));
  }
}

// A key in standard order → its places in the run of sixteen slots.
void place_key(const RowFormat& format, const std::byte* row, std::byte* run, std::size_t lane) {
  std::byte* codes = run + lane * format.atom;
  if (format.atom == 4) {
    spread<std::uint32_t>(row, format.code_bytes / 4, codes);
  } else if (format.atom == 2) {
    spread<std::uint16_t>(row, format.code_bytes / 2, codes);
  } else {
    spread<std::uint8_t>(row, format.code_bytes, codes);
  }
  spread<std::uint16_t>(row + format.code_bytes, (format.bytes - format.code_bytes) / 2,
                        run + kLaneSlots * format.code_bytes + lane * 2);
}

// One token on one thread; `room` holds a key row's bytes and a vector of floats.
struct WriteRoom {
  float* vector;
  std::byte* row;
};

class Writer {
 public:
  Writer(const ExecContext& ctx, const KvWriteArgs& args)
      : kernels_(kernels_of(ctx).attention),
        args_(args),
        k_(row_format(args.cache.layout.k_row())),
        v_(row_format(args.cache.layout.v_row())) {}

  void write(std::int64_t t, const WriteRoom& room) const {
    const KvLayout& layout = args_.cache.layout;
    const auto page = static_cast<std::size_t>(args_.slots[t] / kPageSlots);
    const auto slot = static_cast<std::size_t>(args_.slots[t] % kPageSlots);
    for (int h = 0; h < layout.kv_heads; ++h) {
      const auto head = static_cast<std::size_t>(h) * kPageSlots;
      std::byte* k = args_.cache.k + page * layout.k_page_bytes() + head * k_.bytes;
      std::byte* v = args_.cache.v + page * layout.v_page_bytes() + head * v_.bytes;
      kernels_.encode_row(k_, args_.k.row<float>(t) + std::int64_t{h} * k_.dim, room.vector,
                          room.row);
      place_key(k_, room.row, k + slot / kLaneSlots * kLaneSlots * k_.bytes, slot % kLaneSlots);
      kernels_.encode_row(v_, args_.v.row<float>(t) + std::int64_t{h} * v_.dim, room.vector,
                          v + slot * v_.bytes);
    }
  }

 private:
  const AttentionKernels& kernels_;
  const KvWriteArgs& args_;
  RowFormat k_;
  RowFormat v_;
};

}  // namespace

void kv_write(ExecContext& ctx, const KvWriteArgs& args) {
  const Writer writer(ctx, args);
  const std::int64_t tokens = args.k.shape[0];
  const KvLayout& layout = args.cache.layout;
  const std::int64_t dim = std::max(layout.k_dim, layout.v_dim);
  const int threads = ctx.threads != nullptr ? ctx.threads->threads() : 1;
  const ArenaScope scope(*ctx.scratch);
  // A row's bytes never exceed those of its floats by more than the scales of one group.
  const std::int64_t stride = 2 * dim + 32;
  const TensorView rooms = ctx.scratch->take_f32({threads, stride});
  const auto room_of = [&](int thread) {
    float* room = rooms.row<float>(thread);
    return WriteRoom{room, reinterpret_cast<std::byte*>(room + dim)};
  };
  // Every pair of elements of a key lies in a cache line of its own, and sixteen slots share it:
  // few tokens are worth sharing, and many are in runs of sixteen.
  constexpr std::int64_t kWorthSharing = 1024;
  for_items(ctx,
            {.count = tokens,
             .grain = tokens < 64 ? 2 : kLaneSlots,
             .shared = tokens * layout.kv_heads * dim >= kWorthSharing},
            [&](int thread, std::int64_t t) { writer.write(t, room_of(thread)); });
}

}  // namespace bl::cpu
