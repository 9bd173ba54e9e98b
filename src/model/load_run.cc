#include "model/load_run.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/dense_gather.h"
#include "nn/device_copy.h"

namespace bl {
namespace {

// Stored bytes, a thread, of the matrices that are packed together. Larger ones are packed one
// after another, by all threads; the bound also limits what packing several at a time holds in
// memory.
constexpr std::size_t kWaveBytes = std::size_t{2} << 20;

std::vector<float> to_floats(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.shape.elements()));
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    const auto* from = view.as<const T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  });
  return values;
}

// Most of the time goes into page faults of the mapped file, which threads can take in parallel.
void copy_by_threads(std::byte* to, const std::byte* from, std::size_t bytes) {
  ThreadPool threads(std::min(8, physical_cores()));
  threads.parallel_for(static_cast<long>(bytes), 1L << 20, [&](long begin, long end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

// The matrix to pack, where it is not the stored one.
std::optional<WeightMatrix> changed(const MatrixWork& work) {
  const bool is_cut = work.cut.rule != ShardRule::kReplicate;
  if (work.rows.empty() && !work.normalized && !work.fold && !is_cut) return std::nullopt;
  WeightMatrix matrix = work.matrix;
  if (!work.rows.empty()) matrix = gather_outputs(std::get<DenseMatrix>(matrix), work.rows);
  if (work.fold) matrix = folded(std::get<DenseMatrix>(matrix), *work.fold);
  if (is_cut) matrix = cut_matrix(matrix, work.cut);
  if (work.normalized) matrix = normalized_outputs(std::get<DenseMatrix>(matrix));
  return matrix;
}

}  // namespace

bool LoadRun::packs_at_once() const {
  const ThreadPool* threads = args_.backend.threads();
  return args_.backend.packs_at_once() && threads != nullptr && threads->threads() > 1;
}

void LoadRun::run(std::span<const std::int32_t> tasks) {
  const bool at_once = packs_at_once();
  const std::size_t limit =
      at_once ? kWaveBytes * static_cast<std::size_t>(args_.backend.threads()->threads()) : 0;
  for (const std::int32_t id : tasks) {
    const LoadTask& next = task(id);
    if (!std::holds_alternative<MatrixWork>(next.work)) {
      if (!at_once) run_wave();
      run_one(next);
      continue;
    }
    if (wave_bytes_ + next.stored > limit) run_wave();
    wave_.push_back(id);
    wave_bytes_ += next.stored;
  }
  run_wave();
}

void LoadRun::run_wave() {
  std::vector<Packed> packed(wave_.size());
  const auto pack_one = [&](std::size_t i, bool one_thread) {
    packed[i] = pack(task(wave_[i]), one_thread);
  };
  if (wave_.size() == 1) {
    pack_one(0, false);
  } else if (!wave_.empty()) {
    args_.backend.threads()->parallel_for(std::ssize(wave_), 1, [&](long begin, long end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        // Nothing may be thrown out of a region of the pool.
        try {
          pack_one(i, true);
        } catch (const std::exception&) {
          packed[i].error = std::current_exception();
        }
      }
    });
  }
  for (std::size_t i = 0; i < wave_.size(); ++i) {
    if (packed[i].error) std::rethrow_exception(packed[i].error);
    place(task(wave_[i]), std::move(packed[i]));
  }
  wave_.clear();
  wave_bytes_ = 0;
}

LoadRun::Packed LoadRun::pack(LoadTask& task, bool one_thread) const {
  MatrixWork& work = std::get<MatrixWork>(task.work);
  BL_CHECK(!name_of(work.matrix).empty());  // else it was released
  Packed packed;
  {
    const std::optional<WeightMatrix> other = changed(work);
    const WeightMatrix& matrix = other ? *other : work.matrix;
    packed.weight = args_.backend.pack(
        matrix, {.out = work.out, .columns = work.columns, .one_thread = one_thread});
    packed.bias = bias_of(matrix);
  }
  if (args_.release) work.matrix = DenseMatrix{};
  // A plain matrix may stay where it is, in the mapped file; codes were repacked.
  const bool copied = work.quantized || !work.rows.empty() || work.normalized || work.fold;
  if (work.reads_alone && (copied || !args_.backend.reads_host_memory())) {
    for (const std::string& tensor : task.tensors) args_.source.done_with(tensor);
  }
  return packed;
}

void LoadRun::place(const LoadTask& task, Packed packed) {
  const MatrixWork& work = std::get<MatrixWork>(task.work);
  to_.linear(task.target) =
      Linear(std::move(packed.weight), upload_bias(packed.bias, work), task.linear);
  if (args_.done) args_.done(task.stored);
}

Tensor LoadRun::upload_bias(const HostArray& bias, const MatrixWork& work) const {
  if (bias.view.empty()) return {};
  std::vector<float> values = to_floats(bias.view);
  BL_CHECK(std::ssize(values) >= work.out);
  if (!work.columns.empty()) {
    std::vector<float> ordered;
    for (const std::int32_t column : work.columns) {
      ordered.push_back(values[static_cast<std::size_t>(column)]);
    }
    values = std::move(ordered);
  }
  values.resize(static_cast<std::size_t>(work.out));
  return device_tensor(args_.backend, std::span<const float>(values), Shape{work.out});
}

void LoadRun::run_one(const LoadTask& task) {
  if (const auto* norm = std::get_if<NormWork>(&task.work)) {
    to_.norm(task.target) = Norm(norm->spec, vector(norm->weight), vector(norm->bias));
  } else if (const auto* one = std::get_if<VectorWork>(&task.work)) {
    to_.vector(task.target) = vector(*one);
  } else if (const auto* values = std::get_if<ValuesWork>(&task.work)) {
    to_.vector(task.target) =
        device_tensor(args_.backend, std::span<const float>(values->values), values->shape);
  } else if (const auto* rows = std::get_if<TableWork>(&task.work)) {
    to_.table(task.target) = table(task, *rows);
    if (args_.done) args_.done(task.stored);
  } else if (const auto* scalar = std::get_if<ScalarWork>(&task.work)) {
    to_.scalar(task.target) = scalar->value;
  }
}

Tensor LoadRun::vector(const VectorWork& work) const {
  if (work.tensor.empty()) return {};
  const std::vector<float> values =
      work.values ? *work.values : to_floats(args_.source.read(work.tensor).view);
  return device_tensor(args_.backend, std::span<const float>(values), work.shape);
}

HostArray LoadRun::table(const LoadTask& task, const TableWork& work) const {
  Backend& backend = args_.backend;
  const auto read = [&](const TensorSource& source) {
    HostArray array = source.read(work.tensor);
    return work.fold ? folded_table(work.tensor, array.view, *work.fold) : array;
  };
  if (backend.reads_host_memory()) return read(args_.source);
  // A backend that makes weights from seeds gets the table without its bytes.
  const bool seeded = backend.makes_seeded() && !work.fold;
  const HostArray array =
      read(seeded ? static_cast<const TensorSource&>(seeded_source_) : args_.source);
  const std::size_t bytes =
      work.fold ? static_cast<std::size_t>(array.view.shape.elements()) * sizeof(Half)
                : task.stored;
  auto copy = std::make_shared<Tensor>(table_memory(bytes, work.on_host), array.view.dtype,
                                       array.view.shape);
  if (array.seeded && work.on_host) {
    make_values(*array.seeded, copy->view().as<std::byte>(), bytes);
  } else if (array.seeded) {
    backend.make_seeded(copy->view(), *array.seeded);
  } else if (work.on_host) {
    copy_by_threads(copy->view().as<std::byte>(), array.view.as<const std::byte>(), bytes);
  } else {
    backend.upload(copy->view(), array.view);
  }
  args_.source.done_with(work.tensor);
  const TensorView view = copy->view();
  return {view, std::move(copy)};
}

Buffer LoadRun::table_memory(std::size_t bytes, bool on_host) const {
  if (!on_host) return args_.backend.allocate_weights(bytes);
  Buffer memory = args_.backend.allocate_transfer(bytes);
  if (memory.data() == nullptr) {
    fail(ErrorCode::kOutOfMemory,
         "--embed-host: the system gives no {} bytes of page-locked memory for the embedding; "
         "without it the embedding is in the device's memory",
         bytes);
  }
  return memory;
}

}  // namespace bl
