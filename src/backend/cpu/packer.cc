#include "backend/cpu/packer.h"

#include <cstring>
#include <utility>

#include "backend/cpu/pack_plan.h"
#include "backend/cpu/scale_nibbles.h"
#include "backend/cpu/tile_codes.h"
#include "base/check.h"
#include "format/bit_codec.h"
#include "format/exl2_scale.h"
#include "tensor/arena.h"
#include "tensor/float16.h"

namespace bl::cpu {
namespace {

// Matrices that share an input are packed close together.
constexpr std::size_t kRememberedLayouts = 64;

// Columns [first, first + count) of one tile.
struct TileColumns {
  std::int64_t first = 0;
  int count = 0;
};

TileColumns columns_of(std::int64_t tile, std::int64_t stored_columns) {
  const std::int64_t first = tile * kTileColumns;
  return {first, static_cast<int>(std::min<std::int64_t>(kTileColumns, stored_columns - first))};
}

void put_half(std::uint8_t* to, std::uint16_t bits) { std::memcpy(to, &bits, sizeof bits); }

// Writes one matrix into tiles. `Source` reads the file's codes and scales.
class TileWriter {
 public:
  TileWriter(const PackPlan& plan, std::uint8_t* tiles) : plan_(plan), tiles_(tiles) {}

  template <class Source>
  void write(const Source& source, std::int64_t tile) const {
    std::uint8_t* start = tiles_ + static_cast<std::size_t>(tile) * plan_.tile_bytes;
    std::memset(start, 0, plan_.codes_offset);
    std::uint8_t* unit = start + plan_.codes_offset;
    std::uint8_t* scales = start;
    const TileColumns columns = columns_of(tile, source.matrix.out);
    for (const PackPlan::Segment& segment : plan_.segments) {
      source.write_scales(segment, columns, scales);
      scales += scale_bytes(plan_.scale_kind);
      for (std::int64_t first = 0; first < segment.slots; first += kUnitSlots) {
        CodeFragment codes;
        source.read_codes(segment, first, columns, codes);
        write_unit(codes, segment.bits, unit);
        unit += 64 * segment.bits;
      }
    }
  }

 private:
  const PackPlan& plan_;
  std::uint8_t* tiles_;
};

struct Exl2Source {
  const Exl2Matrix& matrix;

  void write_scales(const PackPlan::Segment& segment, const TileColumns& columns,
                    std::uint8_t* scales) const {
    const std::uint32_t* row = matrix.q_scale.data() + segment.group * (matrix.out / 8);
    for (int c = 0; c < columns.count; ++c) {
      const int position = nibble_position(c);
      scales[position / 2] = static_cast<std::uint8_t>(
          scales[position / 2] | (exl2_scale_code(row, columns.first + c) << (4 * (position % 2))));
    }
  }

  // Reads slots [first, first + 32) of a segment.
  void read_codes(const PackPlan::Segment& segment, std::int64_t first, const TileColumns& columns,
                  CodeFragment& codes) const {
    const auto& group = matrix.groups[static_cast<std::size_t>(segment.group)];
    const std::int64_t run = (segment.first + first - group.first_slot) / kCodesPerRun;
    const std::uint32_t* words = matrix.q_weight.data() +
                                 (group.first_word + run * segment.bits) * matrix.out +
                                 columns.first;
    const bool known = visit_code_width(segment.bits, [&]<int Bits>() {
      for (int c = 0; c < columns.count; ++c) {
        std::uint8_t column[kCodesPerRun];
        BitCodec<Bits>::read_run(words + c, matrix.out, column);
        for (int q = 0; q < kQuadsPerUnit; ++q) std::memcpy(&codes.quads[q][c], column + 4 * q, 4);
      }
    });
    BL_CHECK(known);
  }
};

struct GptqSource {
  const GptqMatrix& matrix;
  const PackPlan& plan;
  const std::vector<std::int32_t>& channels;  // channel of each slot

  void write_scales(const PackPlan::Segment& segment, const TileColumns& columns,
                    std::uint8_t* scales) const {
    const auto row = static_cast<std::size_t>(segment.group * matrix.out + columns.first);
    for (int c = 0; c < columns.count; ++c) {
      const std::size_t at = row + static_cast<std::size_t>(c);
      put_half(scales + 2 * c, matrix.scales[at]);
      const int zero = matrix.zeros[at] - plan.zero;
      if (plan.scale_kind == ScaleKind::kHalfZero8) {
        scales[32 + c] = static_cast<std::uint8_t>(zero);
      } else if (plan.scale_kind == ScaleKind::kHalfZero16) {
        put_half(scales + 32 + 2 * c, static_cast<std::uint16_t>(zero));
      }
    }
  }

  void read_codes(const PackPlan::Segment& segment, std::int64_t first, const TileColumns& columns,
                  CodeFragment& codes) const {
    const std::int64_t count = std::min<std::int64_t>(kUnitSlots, segment.slots - first);
    for (int i = 0; i < static_cast<int>(count); ++i) {
      const std::int64_t channel = channels[static_cast<std::size_t>(segment.first + first + i)];
      for (int c = 0; c < columns.count; ++c) {
        codes.set(i, c,
                  read_code(matrix.qweight.data() + columns.first + c, matrix.out, channel,
                            segment.bits));
      }
    }
  }
};

template <class Source>
void write_tiles(ThreadPool* threads, const Source& source, const PackPlan& plan,
                 QuantizedWeights& weights) {
  const TileWriter writer(plan, weights.tiles.data());
  const auto tiles = static_cast<long>(weights.tiles.bytes() / plan.tile_bytes);
  const auto write = [&](long begin, long end) {
    for (long tile = begin; tile < end; ++tile) writer.write(source, tile);
  };
  if (threads == nullptr) {
    write(0, tiles);
  } else {
    threads->parallel_for(tiles, 4, write);
  }
}

DenseType dense_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return DenseType::kHalf;
    case DType::kBF16:
      return DenseType::kBFloat;
    default:
      BL_CHECK(dtype == DType::kF32);
      return DenseType::kFloat;
  }
}

bool stays_in_file(const DenseMatrix& matrix) {
  return !matrix.transposed && matrix.weight.view.row_stride == matrix.in();
}

// Copies a matrix that is transposed or has gaps to contiguous rows [out, in].
template <class Word>
void copy_rows(const DenseMatrix& matrix, std::int64_t out, std::byte* rows) {
  const TensorView& view = matrix.weight.view;
  const std::int64_t in = matrix.in();
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t c0 = 0; c0 < out; c0 += kBlock) {
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t c = c0; c < std::min(out, c0 + kBlock); ++c) {
        const std::int64_t from =
            matrix.transposed ? i * view.row_stride + c : c * view.row_stride + i;
        std::memcpy(rows + (c * in + i) * static_cast<std::int64_t>(sizeof(Word)),
                    view.as<std::byte>() + from * static_cast<std::int64_t>(sizeof(Word)),
                    sizeof(Word));
      }
    }
  }
}

}  // namespace

TileMemory TileAllocator::allocate(std::size_t bytes) {
  constexpr std::size_t kSlabBytes = std::size_t{16} << 20;
  // Larger allocations have huge pages of their own.
  constexpr std::size_t kLargest = std::size_t{2} << 20;
  if (bytes >= kLargest) return {std::make_shared<const Buffer>(allocate_host(bytes)), 0, bytes};
  std::shared_ptr<const Buffer> slab = slab_.lock();
  if (slab == nullptr || kSlabBytes - used_ < bytes) {
    slab = std::make_shared<const Buffer>(allocate_host(kSlabBytes));
    slab_ = slab;
    used_ = 0;
  }
  const std::size_t offset = used_;
  used_ += arena_bytes(DType::kI8, static_cast<std::int64_t>(bytes));
  return {std::move(slab), offset, bytes};
}

QuantizedWeights Packer::empty_weights(const PackPlan& plan, std::int64_t out) {
  QuantizedWeights weights;
  {
    const std::lock_guard lock(shared_);
    weights.tiles = tiles_.allocate(static_cast<std::size_t>(tiles_of(out)) * plan.tile_bytes);
  }
  weights.bands = plan.bands;
  weights.scale_kind = plan.scale_kind;
  weights.zero = plan.zero;
  weights.tile_bytes = plan.tile_bytes;
  weights.codes_offset = plan.codes_offset;
  return weights;
}

std::unique_ptr<CpuMatrix> Packer::pack(const WeightMatrix& matrix, std::int64_t out,
                                        bool one_thread) {
  BL_CHECK(out > 0 && out <= out_features(matrix));
  std::unique_lock<std::mutex> lock(turn_, std::defer_lock);
  if (!one_thread) lock.lock();
  ThreadPool* threads = one_thread ? nullptr : &threads_;
  CpuMatrix::Weights weights =
      std::visit([&](const auto& m) { return pack_one(m, out, threads); }, matrix);
  return std::make_unique<CpuMatrix>(in_features(matrix), out, std::move(weights));
}

CpuMatrix::Weights Packer::pack_one(const Exl2Matrix& matrix, std::int64_t out,
                                    ThreadPool* threads) {
  const PackPlan plan = plan_packing(matrix);
  QuantizedWeights weights = empty_weights(plan, out);
  weights.layout = share(plan.layout(matrix.perm));
  for (const PackPlan::Segment& segment : plan.segments) {
    const float scale =
        exl2_group_scale(matrix.q_scale_max[static_cast<std::size_t>(segment.group)]);
    for (std::uint32_t code = 0; code < 16; ++code) {
      weights.tables.push_back(exl2_column_scale(scale, code));
    }
  }
  write_tiles(threads, Exl2Source{matrix}, plan, weights);
  return weights;
}

CpuMatrix::Weights Packer::pack_one(const GptqMatrix& matrix, std::int64_t out,
                                    ThreadPool* threads) {
  const PackPlan plan = plan_packing(matrix);
  const std::vector<std::int32_t> channels = sorted_channels(matrix);
  QuantizedWeights weights = empty_weights(plan, out);
  weights.layout = share(plan.layout(channels));
  write_tiles(threads, GptqSource{matrix, plan, channels}, plan, weights);
  return weights;
}

CpuMatrix::Weights Packer::pack_one(const DenseMatrix& matrix, std::int64_t out, ThreadPool*) {
  const TensorView& view = matrix.weight.view;
  DenseWeights weights;
  weights.type = dense_type(view.dtype);
  if (stays_in_file(matrix)) {
    weights.rows = view.as<const std::byte>();
    weights.owner = matrix.weight.owner;
    return weights;
  }
  weights.copy = allocate_host(static_cast<std::size_t>(out * matrix.in()) * size_of(view.dtype));
  auto* rows = static_cast<std::byte*>(weights.copy.data());
  weights.rows = rows;
  if (size_of(view.dtype) == 2) {
    copy_rows<std::uint16_t>(matrix, out, rows);
  } else {
    copy_rows<std::uint32_t>(matrix, out, rows);
  }
  return weights;
}

std::shared_ptr<const ActivationLayout> Packer::share(ActivationLayout layout) {
  const std::lock_guard lock(shared_);
  for (const auto& known : layouts_) {
    if (auto held = known.lock(); held != nullptr && *held == layout) return held;
  }
  auto made = std::make_shared<const ActivationLayout>(std::move(layout));
  if (layouts_.size() == kRememberedLayouts) layouts_.erase(layouts_.begin());
  layouts_.push_back(made);
  return made;
}

namespace {

std::size_t quantized_bytes(const PackPlan& plan, std::int64_t out) {
  return static_cast<std::size_t>(tiles_of(out)) * plan.tile_bytes + plan.table_bytes();
}
std::size_t bytes_for(const Exl2Matrix& matrix, std::int64_t out) {
  return quantized_bytes(plan_packing(matrix), out);
}
std::size_t bytes_for(const GptqMatrix& matrix, std::int64_t out) {
  return quantized_bytes(plan_packing(matrix), out);
}
std::size_t bytes_for(const DenseMatrix& matrix, std::int64_t out) {
  if (stays_in_file(matrix)) return 0;
  return static_cast<std::size_t>(out * matrix.in()) * size_of(matrix.weight.view.dtype);
}

}  // namespace

std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out) {
  return std::visit([&](const auto& m) { return bytes_for(m, out); }, matrix);
}

}  // namespace bl::cpu
