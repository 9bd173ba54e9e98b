#include "backend/cuda/weights/packer.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/layout/unpack.h"
#include "backend/cuda/weights/pack_kernels.h"
#include "backend/cuda/weights/seeded_kernels.h"
#include "base/check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

// Writes rows [out, in] of a matrix that is stored [in, out]: `bytes` of them from byte `begin` on,
// which may begin and end within a row.
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

// Writes rows [out, in] that are stored with gaps between them.
void compact_rows(const DenseMatrix& matrix, std::byte* to, std::size_t begin, std::size_t bytes) {
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

// Takes the device memory and uploads the tables; the kernels write codes and scales.
CodeWeights Packer::upload_plan(CodePackPlan plan) {
  const CodePackPlan::Layout layout = plan.layout();
  std::shared_ptr<std::byte> memory = slabs_.take(layout.total);
  const std::vector<std::byte> tables = tables_of(plan, layout);
  stage().copy(memory.get() + layout.tables(), tables.data(), tables.size());
  CodeWeights weights = describe_codes(std::move(plan), memory.get());
  weights.memory = std::move(memory);
  return weights;
}

// Packs a slice of columns, which are independent of each other.
void Packer::pack_slice(const CodeWeights& weights, const FileCodes& file, std::int64_t first,
                        std::int64_t columns) {
  const CodePackPlan& plan = weights.plan;
  const SliceLayout layout = slice_layout(file, plan, columns);
  const std::int64_t n_tile = first / kNTileColumns;
  PackTarget target;
  target.n_tile_words = plan.n_tile_bytes() / 4;
  target.codes = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.codes)) +
                 n_tile * target.n_tile_words;
  target.scales = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.scales)) +
                  n_tile * (scale_stride(plan.kind, plan.groups) / 4);
  target.n_tiles = static_cast<std::int32_t>(
      std::min((columns + kNTileColumns - 1) / kNTileColumns, weights.view.n_tiles - n_tile));
  target.k_steps = weights.view.k_steps;
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
    target.bits_of_k_step = reinterpret_cast<const std::int32_t*>(device + layout.bits_of_k_step);
    target.offset_of_k_step =
        reinterpret_cast<const std::int64_t*>(device + layout.offset_of_k_step);
    CodeSource source;
    source.words = reinterpret_cast<const std::uint32_t*>(device + layout.words);
    source.feature_of_k = weights.feature_of_k;
    source.word_of_k_step =
        place<std::int32_t>(device + layout.word_of_k_step, !plan.word_of_k_step.empty());
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
      std::min(weights.plan.n_tiles() * kNTileColumns, weights.plan.stored_out);
  for (std::int64_t first = 0; first < wanted; first += at_once) {
    pack_slice(weights, file, first, std::min(at_once, wanted - first));
  }
  weights.plan.feature_of_k = {};
  weights.plan.fragment_offset_of_feature = {};
  for (NTileKSplit& k_split : weights.plan.k_splits) k_split.fragment_offset_of_feature = {};
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
  LoadStage& load_stage = stage();
  if (!matrix.transposed && stored.row_stride == matrix.in()) {
    load_stage.copy(weights.memory.get(), stored.as<const std::byte>(), bytes);
    return weights;
  }
  load_stage.make(weights.memory.get(), bytes,
                  [&](std::byte* host, std::size_t begin, std::size_t n) {
                    if (matrix.transposed) {
                      transpose_rows(matrix, host, begin, n, load_stage.threads());
                    } else {
                      compact_rows(matrix, host, begin, n);
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
  return std::visit(
      [&](const auto& m) {
        return std::make_unique<CudaMatrix>(in, out, pack_weights(m, out, columns));
      },
      matrix);
}

CodeWeights Packer::pack_weights(const Exl2Matrix& exl2, std::int64_t out,
                                 std::span<const std::int32_t> columns) {
  return pack_codes(plan_codes(exl2, out), {.words = exl2.q_weight,
                                            .scale_codes = exl2.q_scale,
                                            .scales = {},
                                            .zeros = {},
                                            .stored_out = exl2.out,
                                            .columns = columns,
                                            .seeded = exl2.seeded.get()});
}

CodeWeights Packer::pack_weights(const GptqMatrix& gptq, std::int64_t out,
                                 std::span<const std::int32_t> columns) {
  return pack_codes(plan_codes(gptq, out), {.words = gptq.qweight,
                                            .scale_codes = {},
                                            .scales = gptq.scales,
                                            .zeros = gptq.zeros,
                                            .stored_out = gptq.out,
                                            .columns = columns,
                                            .seeded = gptq.seeded.get()});
}

DenseWeights Packer::pack_weights(const DenseMatrix& matrix, std::int64_t out,
                                  std::span<const std::int32_t> columns) {
  BL_CHECK(columns.empty());
  return pack_dense(matrix, out);
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
  std::vector<std::int32_t> features;
  const CodePackPlan& plan = weights.plan;
  fetch(weights.view.codes, plan.code_bytes(), codes);
  fetch(weights.view.scales, plan.scale_bytes_total(), scales);
  fetch(weights.feature_of_k,
        static_cast<std::size_t>(weights.view.k_steps) * kKStepSize * sizeof(std::int32_t),
        features);
  const std::vector<float> values = unpack_codes(plan, {codes, scales, features});
  std::memcpy(result.view().data, values.data(), values.size() * sizeof(float));
  return result;
}

}  // namespace bl::cuda
