#include "backend/cuda/packer.h"

#include <cstring>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/pack_kernels.h"
#include "backend/cuda/unpack.h"
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

// Device copies that live until the work that reads them is done.
class Staged {
 public:
  explicit Staged(cudaStream_t stream) : stream_(stream) {}
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged() {
    for (void* p : memory_) cudaFreeAsync(p, stream_);
  }
  // Null for nothing.
  template <class T>
  const T* copy(std::span<const T> values) {
    if (values.empty()) return nullptr;
    void* data = nullptr;
    BL_CUDA_CHECK(cudaMallocAsync(&data, values.size_bytes(), stream_));
    memory_.push_back(data);
    BL_CUDA_CHECK(
        cudaMemcpyAsync(data, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_));
    return static_cast<const T*>(data);
  }
  template <class T>
  const T* copy(const std::vector<T>& values) {
    return copy(std::span<const T>(values));
  }

 private:
  cudaStream_t stream_;
  std::vector<void*> memory_;
};

// Copies of scales are rounded outwards to 16 bytes.
constexpr std::size_t kScaleSlack = 16;

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

PackTarget target_of(const CodeWeights& weights, Staged& staged) {
  const CodePackPlan& plan = weights.plan;
  std::vector<std::int64_t> offsets;
  std::int64_t words = 0;
  for (const std::int32_t bits : plan.bits_of_unit) {
    offsets.push_back(words);
    words += unit_bytes(bits) / 4;
  }
  PackTarget target;
  target.codes = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.codes));
  target.scales = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weights.view.scales));
  target.bits_of_unit = staged.copy(plan.bits_of_unit);
  target.offset_of_unit = staged.copy(offsets);
  target.strip_words = words;
  target.strips = weights.view.strips;
  target.units = weights.view.units;
  target.groups = weights.view.groups;
  target.kind = plan.kind;
  return target;
}

std::size_t dense_bytes(const DenseMatrix& matrix, std::int64_t out) {
  return static_cast<std::size_t>(matrix.in() * out) * size_of(matrix.weight.view.dtype);
}

// Rows [out, in] of a matrix that is stored [in, out].
std::vector<std::byte> transposed_rows(const DenseMatrix& matrix, std::int64_t out) {
  const TensorView& stored = matrix.weight.view;
  const std::size_t size = size_of(stored.dtype);
  std::vector<std::byte> rows(dense_bytes(matrix, out));
  const std::int64_t in = matrix.in();
  for (std::int64_t i = 0; i < in; ++i) {
    const std::byte* from =
        stored.as<const std::byte>() + static_cast<std::size_t>(i * stored.row_stride) * size;
    for (std::int64_t c = 0; c < out; ++c) {
      std::memcpy(rows.data() + static_cast<std::size_t>(c * in + i) * size,
                  from + static_cast<std::size_t>(c) * size, size);
    }
  }
  return rows;
}

}  // namespace

std::size_t CudaMatrix::bytes() const {
  if (const DenseWeights* dense_weights = dense()) {
    return static_cast<std::size_t>(in() * out()) * size_of(dense_weights->type);
  }
  return codes()->bytes;
}

template <class T>
const T* Packer::upload(std::byte* to, const std::vector<T>& values) {
  if (values.empty()) return nullptr;
  BL_CUDA_CHECK(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                cudaMemcpyHostToDevice, stream_));
  return reinterpret_cast<const T*>(to);
}

// Lays out the device memory and fills the tables; codes and scales are left to the kernels.
CodeWeights Packer::upload_plan(CodePackPlan plan) {
  CodeWeights weights;
  const std::size_t codes = rounded(plan.code_bytes());
  const std::size_t scales = rounded(plan.scale_bytes_total() + kScaleSlack);
  const std::size_t chunks = rounded(bytes_of(plan.chunks));
  const std::size_t pieces = rounded(bytes_of(plan.pieces));
  const std::size_t channels = rounded(bytes_of(plan.channel_of_slot));
  const std::size_t places = rounded(bytes_of(plan.place_of_channel));
  weights.memory = slabs_.take(codes + scales + chunks + pieces + channels + places);
  std::byte* at = weights.memory.get();
  CodeMatrixView& view = weights.view;
  view.codes = at;
  view.scales = at += codes;
  view.chunks = upload(at += scales, plan.chunks);
  view.pieces = upload(at += chunks, plan.pieces);
  weights.channel_of_slot = upload(at += pieces, plan.channel_of_slot);
  weights.place_of_channel = upload(at += channels, plan.place_of_channel);
  view.strip_bytes = plan.strip_bytes();
  view.strips = static_cast<std::int32_t>(plan.strips());
  view.chunk_count = static_cast<std::int32_t>(plan.chunks.size());
  view.piece_count = static_cast<std::int32_t>(plan.pieces.size());
  view.groups = plan.groups;
  view.units = static_cast<std::int32_t>(plan.units());
  view.out = static_cast<std::int32_t>(plan.out);
  view.zero = plan.zero;
  view.kind = plan.kind;
  weights.max_piece_bytes = plan.max_piece_bytes();
  weights.max_piece_scale_bytes = plan.max_piece_scale_bytes();
  weights.bytes = plan.device_bytes();
  std::vector<std::int32_t> gather = plan.channel_of_slot;
  std::vector<std::int32_t> shape{view.strips};
  for (const Chunk& chunk : plan.chunks) {
    gather.push_back(chunk.units);
    shape.push_back(chunk.units * 16 + chunk.bits);
  }
  weights.gather = number_of(gather);
  for (const Piece& piece : plan.pieces) shape.push_back(piece.chunks);
  weights.shape = number_of(shape);
  weights.plan = std::move(plan);
  return weights;
}

CodeWeights Packer::pack_codes(CodePackPlan plan, const FileCodes& file) {
  CodeWeights weights = upload_plan(std::move(plan));
  Staged staged(stream_);
  const PackTarget target = target_of(weights, staged);
  CodeSource source;
  source.words = staged.copy(file.words);
  source.channel_of_slot = weights.channel_of_slot;
  source.word_of_unit = staged.copy(weights.plan.word_of_unit);
  source.stored_out = weights.plan.stored_out;
  launch_pack_codes(source, target, stream_);
  ScaleSource scales;
  scales.scale_codes = staged.copy(file.scale_codes);
  scales.scales = staged.copy(file.scales);
  scales.zeros = staged.copy(file.zeros);
  scales.stored_out = weights.plan.stored_out;
  scales.zero = weights.plan.zero;
  launch_pack_scales(scales, target, stream_);
  BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  weights.plan.channel_of_slot = {};
  weights.plan.place_of_channel = {};
  return weights;
}

DenseWeights Packer::pack_dense(const DenseMatrix& matrix, std::int64_t out) {
  const TensorView& stored = matrix.weight.view;
  DenseWeights weights;
  weights.type = stored.dtype;
  const std::size_t bytes = dense_bytes(matrix, out);
  weights.memory = slabs_.take(bytes);
  weights.rows = weights.memory.get();
  if (matrix.transposed) {
    const std::vector<std::byte> rows = transposed_rows(matrix, out);
    BL_CUDA_CHECK(
        cudaMemcpyAsync(weights.memory.get(), rows.data(), bytes, cudaMemcpyHostToDevice, stream_));
    BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return weights;
  }
  const std::size_t row = static_cast<std::size_t>(matrix.in()) * size_of(stored.dtype);
  const std::size_t pitch = static_cast<std::size_t>(stored.row_stride) * size_of(stored.dtype);
  BL_CUDA_CHECK(cudaMemcpy2DAsync(weights.memory.get(), row, stored.data, pitch, row,
                                  static_cast<std::size_t>(out), cudaMemcpyHostToDevice, stream_));
  BL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  return weights;
}

std::unique_ptr<CudaMatrix> Packer::pack(const WeightMatrix& matrix, std::int64_t out) {
  const std::int64_t in = in_features(matrix);
  BL_CHECK(out > 0 && out <= out_features(matrix));
  if (const auto* exl2 = std::get_if<Exl2Matrix>(&matrix)) {
    const FileCodes file{exl2->q_weight, exl2->q_scale, {}, {}};
    return std::make_unique<CudaMatrix>(in, out, pack_codes(plan_codes(*exl2, out), file));
  }
  if (const auto* gptq = std::get_if<GptqMatrix>(&matrix)) {
    const FileCodes file{gptq->qweight, {}, gptq->scales, gptq->zeros};
    return std::make_unique<CudaMatrix>(in, out, pack_codes(plan_codes(*gptq, out), file));
  }
  return std::make_unique<CudaMatrix>(in, out, pack_dense(std::get<DenseMatrix>(matrix), out));
}

Tensor Packer::unpack(const CudaMatrix& matrix) {
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

std::size_t Packer::packed_bytes(const WeightMatrix& matrix, std::int64_t out) {
  if (const auto* exl2 = std::get_if<Exl2Matrix>(&matrix)) {
    return plan_codes(*exl2, out).device_bytes();
  }
  if (const auto* gptq = std::get_if<GptqMatrix>(&matrix)) {
    return plan_codes(*gptq, out).device_bytes();
  }
  return dense_bytes(std::get<DenseMatrix>(matrix), out);
}

}  // namespace bl::cuda
