#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_writer.h"

namespace bl::cpu {
namespace {

// Copies the code atoms of one slot to their places among those of sixteen slots, which are
// interleaved.
template <class Atom>
void spread(const std::byte* row, std::size_t count, std::byte* lane) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(lane + i * kLaneSlots * sizeof(Atom), row + i * sizeof(Atom), sizeof(Atom));
  }
}

// Copies a key in standard order to its places in a run of sixteen slots.
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

}  // namespace

KvWriter::KvWriter(const ExecContext& ctx, const KvWriteArgs& args)
    : kernels_(kernels_of(ctx).attention),
      args_(args),
      k_(row_format(args.cache.layout.k_row())),
      v_(row_format(args.cache.layout.v_row())) {}

void KvWriter::write(std::int64_t t, std::int64_t head, float* room) const {
  const KvLayout& layout = args_.cache.layout;
  const auto page = static_cast<std::size_t>(args_.slots[t] / kPageSlots);
  const auto slot = static_cast<std::size_t>(args_.slots[t] % kPageSlots);
  const auto first = static_cast<std::size_t>(head) * kPageSlots;
  std::byte* keys = args_.cache.k + page * layout.k_page_bytes() + first * k_.bytes;
  std::byte* values = args_.cache.v + page * layout.v_page_bytes() + first * v_.bytes;
  // A row's bytes exceed those of its floats by at most the scales of one group.
  auto* row = reinterpret_cast<std::byte*>(room + std::max(k_.dim, v_.dim));
  kernels_.encode_row(k_, args_.k.row<float>(t) + head * k_.dim, room, row);
  place_key(k_, row, keys + slot / kLaneSlots * kLaneSlots * k_.bytes, slot % kLaneSlots);
  kernels_.encode_row(v_, args_.v.row<float>(t) + head * v_.dim, room, values + slot * v_.bytes);
}

void kv_write(ExecContext& ctx, const KvWriteArgs& args) {
  const KvWriter writer(ctx, args);
  const std::int64_t tokens = args.k.shape[0];
  const KvLayout& layout = args.cache.layout;
  const std::int64_t dim = std::max(layout.k_dim, layout.v_dim);
  const int threads = ctx.threads != nullptr ? ctx.threads->threads() : 1;
  const ArenaScope scope(*ctx.scratch);
  const TensorView rooms = ctx.scratch->take_f32({threads, KvWriter::room_floats(dim)});
  // Each pair of a key's elements is in a cache line of its own, which sixteen slots share. So even
  // a few tokens are worth sharing, and many are handed out in runs of sixteen.
  constexpr std::int64_t kWorthSharing = 1024;
  for_items(ctx,
            {.count = tokens,
             .grain = tokens < 64 ? 2 : kLaneSlots,
             .shared = tokens * layout.kv_heads * dim >= kWorthSharing},
            [&](int thread, std::int64_t t) {
              for (int h = 0; h < layout.kv_heads; ++h) {
                writer.write(t, h, rooms.row<float>(thread));
              }
            });
}

}  // namespace bl::cpu
