#include "model/weight_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/dense_gather.h"
#include "nn/device_copy.h"

namespace bl {
namespace {

std::vector<float> to_floats(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.shape.elements()));
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    const auto* from = view.as<const T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  });
  return values;
}

std::string shapes_text(std::initializer_list<Shape> shapes) {
  std::string text;
  for (const Shape& shape : shapes) text += (text.empty() ? "" : " or ") + shape.to_string();
  return text;
}

double bits_per_weight(const WeightMatrix& matrix) {
  const auto weights = static_cast<double>(in_features(matrix) * out_features(matrix));
  return static_cast<double>(stored_bytes(matrix)) * 8.0 / weights;
}

// Most of the time goes into the faults of a mapped file, which threads take side by side.
void copy_by_threads(std::byte* to, const std::byte* from, std::size_t bytes) {
  ThreadPool threads(std::min(8, physical_cores()));
  threads.parallel_for(static_cast<long>(bytes), 1L << 20, [&](long begin, long end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

// The module whose weight a plain matrix is.
std::string module_of(const DenseMatrix& matrix) {
  constexpr std::string_view kSuffix = ".weight";
  const std::string& name = matrix.name;
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

}  // namespace

std::string join_name(const std::string& prefix, const std::string& name) {
  if (prefix.empty() || name.empty()) return prefix + name;
  return prefix + "." + name;
}

void WeightReader::begin(Phase phase) {
  phase_ = phase;
  next_ = 0;
  if (phase == Phase::kCheck) {
    pending_.clear();
    totals_ = {};
    sites_ = {};
  }
}

void WeightReader::add_site(const std::string& module, AdapterSite site) {
  if (phase_ == Phase::kLoad) return;
  site.refusal = site_refusal_;
  sites_.add(module, std::move(site));
}

const std::string* WeightReader::pick(const std::string& prefix, const Names& names) const {
  for (const std::string& name : names) {
    if (has_weight_matrix(source_, join_name(prefix, name))) return &name;
  }
  return nullptr;
}

std::string WeightReader::key_of(const std::string& prefix, const Names& names) const {
  const std::string* found = pick(prefix, names);
  return join_name(prefix, found != nullptr ? *found : names.at(0));
}

Linear WeightReader::linear(const std::string& key, const LinearShape& shape) {
  if (phase_ == Phase::kLoad) return pack_next();
  LoadHints hints;
  hints.in = shape.in;
  hints.out = shape.out;
  hints.more_out = shape.more_out;
  hints.transposed = shape.transposed;
  hints.gptq = gptq_;
  std::vector<std::string> tensors;
  for (const char* suffix : {".weight", ".q_weight", ".q_scale", ".q_scale_max", ".q_groups",
                             ".q_invperm", ".qweight", ".qzeros", ".scales", ".g_idx", ".bias"}) {
    if (source_.find(key + suffix) != nullptr) tensors.push_back(key + suffix);
  }
  used_.insert(tensors.begin(), tensors.end());
  Pending pending;
  pending.matrix = load_weight_matrix(shape.transposed ? source_ : bulk_source(), key, hints);
  pending.options.out = shape.out;
  pending.tensors = std::move(tensors);
  Linear linear = add(std::move(pending), key, shape.transposed);
  add_site(key, {.in = shape.in,
                 .out = shape.out,
                 .parts = {{.linear = linear.id(), .count = shape.out}},
                 .replaceable = shape.replaceable});
  return linear;
}

Linear WeightReader::linear(const DenseMatrix& matrix, std::vector<std::int64_t> rows) {
  if (phase_ == Phase::kLoad) return pack_next();
  used_.insert(matrix.name);
  Pending pending;
  pending.matrix = matrix;
  pending.rows = std::move(rows);
  return add(std::move(pending), module_of(matrix), matrix.transposed);
}

Linear WeightReader::linear(const DenseMatrix& matrix, std::int64_t out, bool normalized) {
  if (phase_ == Phase::kLoad) return pack_next();
  Pending pending;
  pending.shared = !used_.insert(matrix.name).second;
  pending.matrix = matrix;
  pending.options.out = out;
  pending.normalized = normalized;
  return add(std::move(pending), module_of(matrix), matrix.transposed);
}

void WeightReader::order_hidden(const Linear& reader,
                                std::initializer_list<const Linear*> writers) {
  if (phase_ == Phase::kLoad || !backend_.reorders_hidden()) return;
  const auto pending_of = [this](const Linear& linear) -> Pending& {
    return pending_[static_cast<std::size_t>(linear.id())];
  };
  auto* exl2 = std::get_if<Exl2Matrix>(&pending_of(reader).matrix);
  const bool can =
      exl2 != nullptr && !std::is_sorted(exl2->perm.begin(), exl2->perm.end()) &&
      std::none_of(writers.begin(), writers.end(), [&](const Linear* writer) {
        return writer->id() >= 0 && std::holds_alternative<DenseMatrix>(pending_of(*writer).matrix);
      });
  if (!can) return;
  const std::vector<std::int32_t> order = exl2->perm;
  std::iota(exl2->perm.begin(), exl2->perm.end(), 0);
  sites_.order_inputs(reader.id(), order);
  for (const Linear* writer : writers) {
    if (writer->id() < 0) continue;
    PackOptions& options = pending_of(*writer).options;
    const auto count = static_cast<std::int32_t>(order.size());
    for (std::int32_t first = 0; first < options.out; first += count) {
      for (const std::int32_t channel : order) options.columns.push_back(first + channel);
    }
    BL_CHECK(options.columns.size() == static_cast<std::size_t>(options.out));
    sites_.order_outputs(writer->id(), options.columns);
  }
}

Linear WeightReader::add(Pending pending, std::string module, bool transposed) {
  const WeightMatrix& matrix = pending.matrix;
  const std::int64_t stored_out = out_features(matrix);
  std::int64_t out = pending.options.out > 0 ? pending.options.out : stored_out;
  std::size_t stored = stored_bytes(matrix);
  std::size_t packed = backend_.packed_bytes(matrix, pending.options);
  if (!pending.rows.empty()) {
    out = static_cast<std::int64_t>(pending.rows.size());
    const auto share = static_cast<double>(out) / static_cast<double>(stored_out);
    stored = static_cast<std::size_t>(static_cast<double>(stored) * share);
    packed = backend_.packed_bytes(matrix, {.out = out});
  }
  // A plain matrix that stays in the mapped file must be resident all the same, but once.
  if (packed == 0 && !pending.shared) packed = stored;
  pending.stored = pending.shared ? 0 : stored;
  totals_.stored += pending.stored;
  totals_.packed += packed;
  if (!std::holds_alternative<DenseMatrix>(matrix)) {
    totals_.quantized_stored += stored;
    totals_.quantized_packed += packed;
  }
  if (!bias_of(matrix).view.empty()) {
    add_packed(backend_.weight_bytes(static_cast<std::size_t>(out) * sizeof(float)));
  }
  totals_.max_in = std::max(totals_.max_in, in_features(matrix));
  totals_.max_slots = std::max(totals_.max_slots, backend_.packed_inputs(matrix));
  totals_.max_out = std::max(totals_.max_out, out);
  totals_.bits_per_weight.emplace_back(name_of(matrix), bits_per_weight(matrix));
  const auto id = static_cast<std::int32_t>(pending_.size());
  sites_.add_origin({std::move(module), pending.rows, out, transposed});
  sites_.set_widest(std::min(totals_.max_in, totals_.max_out));
  pending_.push_back(std::move(pending));
  return {nullptr, Tensor(), id};
}

Linear WeightReader::pack_next() {
  BL_CHECK(next_ < pending_.size());
  const auto id = static_cast<std::int32_t>(next_);
  Pending& pending = pending_[next_++];
  bool copied = false;
  if (auto* dense = std::get_if<DenseMatrix>(&pending.matrix)) {
    copied = !pending.rows.empty() || pending.normalized;
    if (!pending.rows.empty()) *dense = gather_outputs(*dense, pending.rows);
    if (pending.normalized) *dense = normalized_outputs(*dense);
  }
  std::unique_ptr<PackedMatrix> packed = backend_.pack(pending.matrix, pending.options);
  Tensor bias = upload_bias(bias_of(pending.matrix), pending.options.columns, packed->out());
  // A plain matrix may stay where it is (the backend reads the mapped file); codes were repacked.
  const bool stays = !copied && std::holds_alternative<DenseMatrix>(pending.matrix) &&
                     backend_.reads_host_memory();
  pending.matrix = DenseMatrix{};
  if (!stays) {
    for (const std::string& tensor : pending.tensors) source_.done_with(tensor);
  }
  if (done_) done_(pending.stored);
  return {std::move(packed), std::move(bias), id};
}

Tensor WeightReader::upload_bias(const HostArray& bias, std::span<const std::int32_t> columns,
                                 std::int64_t out) {
  if (bias.view.empty()) return {};
  std::vector<float> values = to_floats(bias.view);
  BL_CHECK(static_cast<std::int64_t>(values.size()) >= out);
  if (!columns.empty()) {
    std::vector<float> ordered;
    for (const std::int32_t column : columns) {
      ordered.push_back(values[static_cast<std::size_t>(column)]);
    }
    values = std::move(ordered);
  }
  values.resize(static_cast<std::size_t>(out));
  return device_tensor(backend_, std::span<const float>(values), Shape{out});
}

std::string WeightReader::first_existing(const std::string& prefix, const Names& names) const {
  std::string tried;
  for (const std::string& name : names) {
    const std::string full = join_name(prefix, name);
    if (has_tensor(full)) return full;
    tried += (tried.empty() ? "" : ", ") + full;
  }
  fail_missing(tried);
}

void WeightReader::fail_missing(const std::string& tried) const {
  // One file of the model shows the user which model it is.
  const std::vector<std::string> names = source_.names();
  const TensorInfo* first = names.empty() ? nullptr : source_.find(names.front());
  const std::filesystem::path file = first == nullptr ? "the model" : first->file;
  const bool is_folder = file.extension() == ".safetensors" && file.has_parent_path();
  fail(ErrorCode::kNotFound, "{}: no tensor {}, which this architecture needs",
       is_folder ? file.parent_path().string() : file.string(), tried);
}

std::vector<float> WeightReader::host_values(const std::string& prefix, const Names& names,
                                             std::initializer_list<Shape> shapes) {
  const std::string name = first_existing(prefix, names);
  used_.insert(name);
  const TensorInfo& info = *source_.find(name);
  if (info.dtype != DType::kF32 && info.dtype != DType::kF16 && info.dtype != DType::kBF16) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is {}, must be F32, F16 or BF16", info.file, name,
         name_of(info.dtype));
  }
  if (std::find(shapes.begin(), shapes.end(), info.shape) == shapes.end()) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} has shape {}, must be {} as the config says",
         info.file, name, info.shape.to_string(), shapes_text(shapes));
  }
  if (phase_ == Phase::kCheck) return {};
  return to_floats(source_.read(name).view);
}

Tensor WeightReader::vector(const std::string& prefix, const Names& names,
                            std::initializer_list<Shape> shapes) {
  const std::vector<float> values = host_values(prefix, names, shapes);
  if (phase_ == Phase::kCheck) {
    const std::string name = first_existing(prefix, names);
    const auto elements = static_cast<std::size_t>(source_.find(name)->shape.elements());
    add_packed(backend_.weight_bytes(elements * sizeof(float)));
    return {};
  }
  // Of equal meaning, so that layers see one shape: the one with as many elements.
  for (const Shape& shape : shapes) {
    if (shape.elements() == static_cast<std::int64_t>(values.size())) {
      return device_tensor(backend_, std::span<const float>(values), shape);
    }
  }
  BL_CHECK(false);
  return {};
}

Tensor WeightReader::computed(const std::vector<float>& values, const Shape& shape) {
  if (phase_ == Phase::kCheck) {
    add_packed(backend_.weight_bytes(values.size() * sizeof(float)));
    return {};
  }
  return device_tensor(backend_, std::span<const float>(values), shape);
}

void WeightReader::add_packed(std::size_t bytes) {
  if (phase_ == Phase::kCheck) totals_.packed += bytes;
}

Norm WeightReader::norm(const NormSpec& spec, const std::string& prefix, const Names& names,
                        std::initializer_list<Shape> shapes) {
  if (!spec.weighted) return {spec, {}, {}};
  Names weights;
  for (const std::string& name : names) weights.push_back(name + ".weight");
  Tensor weight = vector(prefix, weights, shapes);
  const std::string found = first_existing(prefix, weights);
  const std::string bias = found.substr(0, found.size() - 6) + "bias";
  if (!has_tensor(bias)) return {spec, std::move(weight), {}};
  return {spec, std::move(weight), vector("", {bias}, shapes)};
}

HostArray WeightReader::table(const std::string& tensor, const TableShape& shape) {
  const TensorInfo* info = source_.find(tensor);
  if (info == nullptr) {
    fail_missing(tensor);
  }
  if (info->dtype != DType::kF32 && info->dtype != DType::kF16 && info->dtype != DType::kBF16) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is {}, must be F32, F16 or BF16", info->file,
         tensor, name_of(info->dtype));
  }
  if (info->shape.rank() != 2 || info->shape[0] < shape.least_rows ||
      info->shape[1] != shape.width) {
    fail(ErrorCode::kInvalidFile,
         "{}: tensor {} has shape {}, must be [{} or more, {}] as the config says", info->file,
         tensor, info->shape.to_string(), shape.least_rows, shape.width);
  }
  const std::size_t bytes = static_cast<std::size_t>(info->shape.elements()) * size_of(info->dtype);
  if (phase_ == Phase::kCheck) {
    used_.insert(tensor);
    totals_.stored += bytes;
    if (shape.on_host && !backend_.reads_host_memory()) {
      totals_.on_host += bytes;
    } else {
      totals_.packed += backend_.weight_bytes(bytes);
    }
    return {};
  }
  HostArray array = bulk_source().read(tensor);
  if (!backend_.reads_host_memory()) {
    auto copy =
        std::make_shared<Tensor>(table_memory(bytes, shape.on_host), info->dtype, info->shape);
    if (array.seeded && shape.on_host) {
      make_values(*array.seeded, copy->view().as<std::byte>(), bytes);
    } else if (array.seeded) {
      backend_.make_seeded(copy->view(), *array.seeded);
    } else if (shape.on_host) {
      copy_by_threads(copy->view().as<std::byte>(), array.view.as<const std::byte>(), bytes);
    } else {
      backend_.upload(copy->view(), array.view);
    }
    source_.done_with(tensor);
    const TensorView view = copy->view();
    array = {view, std::move(copy)};
  }
  if (done_) done_(bytes);
  return array;
}

Buffer WeightReader::table_memory(std::size_t bytes, bool on_host) {
  if (!on_host) return backend_.allocate_weights(bytes);
  Buffer memory = backend_.allocate_transfer(bytes);
  if (memory.data() == nullptr) {
    fail(ErrorCode::kOutOfMemory,
         "--embed-host: the system gives no {} bytes of page-locked memory for the embedding; "
         "without it the embedding is in the device's memory",
         bytes);
  }
  return memory;
}

}  // namespace bl
