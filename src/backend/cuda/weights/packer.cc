#include "backend/cuda/weights/packer.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/weights/pack_kernels.h"
#include "backend/cuda/weights/seeded_kernels.h"
#include "backend/cuda/layout/unpack.h"
#include "base/check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

// FNV-1a, of a gather: equal numbers are taken for equal tables.
std::uint64_t number_of(const std::vector<std::int32_t>& channels) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int32_t channel : channels) {
    hash = (hash ^ static_cast<std::uint32_t>(channel)) * 0x100000001b3u;
  }
  return hash ^ channels.size();
}

// Whether slots are channels, one for one.
bool is_in_order(const std::vector<std::int32_t>& channel_of_slot, std::int64_t in) {
  if (static_cast<std::int64_t>(channel_of_slot.size()) != in) return false;
  for (std::size_t slot = 0; slot < channel_of_slot.size(); ++slot) {
    if (channel_of_slot[slot] != static_cast<std::int32_t>(slot)) return false;
  }
  return true;
}

// Rows [out, in] of a matrix that is stored [in, out]: `bytes` of them from byte `begin` on, which
// may begin and end within a row.
void transpose_rows(const DenseMatrix& matrix, std::byte* to, std::size_t begin, std::size_t bytes,
                    ThreadPool& threads) {
  const TensorView& stored = matrix.weight.view;
  const std::size_t size = size_of(stored.dtype);
  const auto in = static_cast<std::size_t>(matrix.in());
  const std::size_t pitch = static_cast<std::size_t>(stored.row_stride) * size;
  const std::size_t first = begin / size;
  const auto* from = stored.as<const std::byte>();
  threads.parallel_for(static_cast<long>(bytes / size), 4096, [&](long low, long high) {
    for (auto e = static_cast<std::size_t>(low); e < static_cast<std::size_t>(high); ++e) {
      const std::size_t column = (first + e) / in;
      const std::size_t row = (first + e) % in;
      std::memcpy(to + e * size, from + row * pitch + column * size, size);
    }
  });
}

// Rows [out, in] that are stored with room between them.
void gather_rows(const DenseMatrix& matrix, std::byte* to, std::size_t begin, std::size_t bytes) {
  const TensorView& stored = matrix.weight.view;
  const std::size_t size = size_of(stored.dtype);
  const std::size_t row = static_cast<std::size_t>(matrix.in()) * size;
  const std::size_t pitch = static_cast<std::size_t>(stored.row_stride) * size;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t at = begin + done;
    const std::size_t count = std::min(bytes - done, row - at % row);
    std::memcpy(to + done, stored.as<const std::byte>() + at / row * pitch + at % row, count);
    done += count;
  }
}

template <class T>
const T* place(const std::byte* at, bool present) {
  return present ? reinterpret_cast<const T*>(at) : nullptr;
}

}  // namespace

std::size_t CudaMatrix::bytes() const {
  if (const DenseWeights* dense_weights = dense()) {
    return static_cast<std::size_t>(in() * out()) * size_of(dense_weights->type);
  }
  return codes()->bytes;
}

void Packer::reserve(std::size_t bytes) {
  slabs_.reserve(bytes);
  stage();
}

void Packer::finish() {
  stage_.reset();
  slabs_.release();
}

LoadStage& Packer::stage() {
  if (!stage_) stage_ = std::make_unique<LoadStage>(memory_, stream_);
  return *stage_;
}

bool Packer::upload(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!stage_) return false;
  stage_->copy(to, from, bytes);
  return true;
}

// Lays out the device memory and fills the tables; codes and scales are left to the kernels.
CodeWeights Packer::upload_plan(CodePackPlan plan) {
  CodeWeights weights;
  const CodePackPlan::Layout layout = plan.layout();
  weights.memory = slabs_.take(layout.total);
  std::byte* memory = weights.memory.get();
  const std::vector<std::byte> tables = tables_of(plan, layout);
  stage().copy(memory + layout.tables(), tables.data(), tables.size());
  static_cast<CodeViews&>(weights) = views_of(plan, layout, memory);
  weights.max_piece_bytes = plan.max_piece_bytes();
  weights.max_piece_scale_bytes = plan.max_piece_scale_bytes();
  weights.bytes = layout.total;
  std::vector<std::int32_t> gather = plan.channel_of_slot;
  weights.order = number_of(gather);
  weights.in_order = is_in_order(gather, plan.in);
  std::vector<std::int32_t> cut{static_cast<std::int32_t>(plan.kind), weights.view.zero};
  for (const Chunk& chunk : plan.chunks) {
    gather.push_back(chunk.units);
    cut.push_back(chunk.units * 16 + chunk.bits);
    cut.push_back(chunk.group);
  }
  for (const DigitRun& run : plan.runs) gather.push_back(run.units);
  weights.gather = number_of(gather);
  for (const Piece& piece : plan.pieces) cut.push_back(piece.chunks);
  weights.cut = number_of(cut);
  cut.push_back(weights.view.strips);
  weights.shape = number_of(cut);
  weights.plan = std::move(plan);
  return weights;
}

// Columns are packed apart from each other: strips are cut along them.
void Packer::pack_slice(const CodeWeights& weights, const FileCodes& file, std::int64_t first,
                        std::int64_t columns) {
  const CodePackPlan& plan = weights.plan;
  const SliceLayout layout = slice_layout(file, plan, columns);
  const std::int64_t strip = first / kStripColumns;
  PackTarget target;
  target.strip_words = plan.strip_bytes() / 4;
  target.codes = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.codes)) +
                 strip * target.strip_words;
  target.scales = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.scales)) +
                  strip * (scale_stride(plan.kind, plan.groups) / 4);
  target.strips = static_cast<std::int32_t>(
      std::min((columns + kStripColumns - 1) / kStripColumns, weights.view.strips - strip));
  target.units = weights.view.units;
  target.groups = weights.view.groups;
  target.kind = plan.kind;
  const auto fill = [&](std::byte* host) {
    copy_slice(file, plan, {first, columns}, host, stage_->threads());
  };
  const LoadStage::LapBytes lap{layout.total, file.seeded != nullptr ? layout.scale_codes : 0};
  stage().run(lap, fill, [&](std::byte* device) {
    if (file.seeded != nullptr) {
      const auto rows = static_cast<std::int64_t>(file.words.size()) / file.stored_out;
      const auto* sources = place<std::int32_t>(device + layout.sources, !file.columns.empty());
      launch_seeded_columns({file.seeded->seed, rows, file.stored_out, first, sources, columns},
                            reinterpret_cast<std::uint32_t*>(device + layout.words), stream_);
    }
    target.bits_of_unit = reinterpret_cast<const std::int32_t*>(device + layout.bits_of_unit);
    target.offset_of_unit = reinterpret_cast<const std::int64_t*>(device + layout.offset_of_unit);
    CodeSource source;
    source.words = reinterpret_cast<const std::uint32_t*>(device + layout.words);
    source.channel_of_slot = weights.channel_of_slot;
    source.word_of_unit =
        place<std::int32_t>(device + layout.word_of_unit, !plan.word_of_unit.empty());
    source.stored_out = columns;
    launch_pack_codes(source, target, stream_);
    ScaleSource scales;
    scales.scale_codes =
        place<std::uint32_t>(device + layout.scale_codes, !file.scale_codes.empty());
    scales.scales = place<std::uint16_t>(device + layout.scales, !file.scales.empty());
    scales.zeros = place<std::uint16_t>(device + layout.zeros, !file.zeros.empty());
    scales.stored_out = columns;
    scales.zero = plan.zero;
    launch_pack_scales(scales, target, stream_);
  });
}

CodeWeights Packer::pack_codes(CodePackPlan plan, const FileCodes& file) {
  CodeWeights weights = upload_plan(std::move(plan));
  const std::int64_t at_once = columns_that_fit(file, weights.plan, kLapBytes);
  const std::int64_t wanted =
      std::min(weights.plan.strips() * kStripColumns, weights.plan.stored_out);
  for (std::int64_t first = 0; first < wanted; first += at_once) {
    pack_slice(weights, file, first, std::min(at_once, wanted - first));
  }
  weights.plan.channel_of_slot = {};
  weights.plan.place_of_channel = {};
  for (StripPart& part : weights.plan.parts) part.place_of_channel = {};
  return weights;
}

DenseWeights Packer::pack_dense(const DenseMatrix& matrix, std::int64_t out) {
  const TensorView& stored = matrix.weight.view;
  DenseWeights weights;
  weights.type = stored.dtype;
  const std::size_t bytes = static_cast<std::size_t>(matrix.in() * out) * size_of(stored.dtype);
  weights.memory = slabs_.take(bytes);
  weights.rows = weights.memory.get();
  if (matrix.weight.seeded) {
    BL_CHECK(!matrix.transposed && stored.row_stride == matrix.in());
    launch_seeded_bytes(*matrix.weight.seeded, weights.memory.get(), bytes, stream_);
    return weights;
  }
  LoadStage& lane = stage();
  if (!matrix.transposed && stored.row_stride == matrix.in()) {
    lane.copy(weights.memory.get(), stored.as<const std::byte>(), bytes);
    return weights;
  }
  lane.make(weights.memory.get(), bytes, [&](std::byte* host, std::size_t begin, std::size_t n) {
    if (matrix.transposed) {
      transpose_rows(matrix, host, begin, n, lane.threads());
    } else {
      gather_rows(matrix, host, begin, n);
    }
  });
  return weights;
}

std::unique_ptr<CudaMatrix> Packer::pack(const WeightMatrix& matrix, const PackOptions& options) {
  const std::int64_t in = in_features(matrix);
  const std::int64_t out = options.out > 0 ? options.out : out_features(matrix);
  const std::vector<std::int32_t>& columns = options.columns;
  BL_CHECK(out <= out_features(matrix));
  BL_CHECK(columns.empty() || columns.size() == static_cast<std::size_t>(out));
  if (const auto* exl2 = std::get_if<Exl2Matrix>(&matrix)) {
    const FileCodes file{exl2->q_weight, exl2->q_scale,     {}, {}, exl2->out,
                         columns,        exl2->seeded.get()};
    return std::make_unique<CudaMatrix>(in, out, pack_codes(plan_codes(*exl2, out), file));
  }
  if (const auto* gptq = std::get_if<GptqMatrix>(&matrix)) {
    const FileCodes file{gptq->qweight, {},      gptq->scales,      gptq->zeros,
                         gptq->out,     columns, gptq->seeded.get()};
    return std::make_unique<CudaMatrix>(in, out, pack_codes(plan_codes(*gptq, out), file));
  }
  BL_CHECK(columns.empty());
  return std::make_unique<CudaMatrix>(in, out, pack_dense(std::get<DenseMatrix>(matrix), out));
}

Tensor Packer::unpack(const CudaMatrix& matrix) {
  BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  Tensor result = make_host_tensor(DType::kF32, {matrix.in(), matrix.out()});
  const std::int64_t in = matrix.in();
  const std::int64_t out = matrix.out();
  if (const DenseWeights* dense = matrix.dense()) {
    std::vector<std::byte> rows(matrix.bytes());
    BL_CUDA_CHECK(cudaMemcpy(rows.data(), dense->rows, rows.size(), cudaMemcpyDeviceToHost));
    visit_float_dtype(dense->type, [&]<class T>(Tag<T>) {
      const T* from = reinterpret_cast<const T*>(rows.data());
      for (std::int64_t i = 0; i < in; ++i) {
        for (std::int64_t c = 0; c < out; ++c) {
          result.view().row<float>(i)[c] = static_cast<float>(from[c * in + i]);
        }
      }
    });
    return result;
  }
  const CodeWeights& weights = *matrix.codes();
  const auto fetch = [&]<class T>(const void* from, std::size_t bytes, std::vector<T>& to) {
    to.resize(bytes / sizeof(T));
    BL_CUDA_CHECK(cudaMemcpy(to.data(), from, bytes, cudaMemcpyDeviceToHost));
  };
  std::vector<std::uint32_t> codes;
  std::vector<std::uint32_t> scales;
  std::vector<std::int32_t> channels;
  const CodePackPlan& plan = weights.plan;
  fetch(weights.view.codes, plan.code_bytes(), codes);
  fetch(weights.view.scales, plan.scale_bytes_total(), scales);
  fetch(weights.channel_of_slot,
        static_cast<std::size_t>(weights.view.units) * kUnitSlots * sizeof(std::int32_t), channels);
  const std::vector<float> values = unpack_codes(plan, {codes, scales, channels});
  std::memcpy(result.view().data, values.data(), values.size() * sizeof(float));
  return result;
}

}  // namespace bl::cuda
