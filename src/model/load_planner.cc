#include "model/load_planner.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"

namespace bl {
namespace {

std::string shapes_text(std::initializer_list<Shape> shapes) {
  std::string text;
  for (const Shape& shape : shapes) text += (text.empty() ? "" : " or ") + shape.to_string();
  return text;
}

// Returns the name of the module that a plain matrix is the weight of.
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

std::vector<std::int64_t> row_range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

LoadPlan LoadPlanner::take() {
  const LoadTotals totals = plan_.totals();
  plan_.sites.set_widest(std::min(totals.max_in, totals.max_out));
  return std::move(plan_);
}

void LoadPlanner::add(LoadTask task) {
  plan_.tensors.insert(task.tensors.begin(), task.tensors.end());
  plan_.tasks.push_back(std::move(task));
}

void LoadPlanner::add_site(const std::string& module, AdapterSite site) {
  site.refusal = site_refusal_;
  plan_.sites.add(module, std::move(site));
}

bool LoadPlanner::separates(const std::string& key) const {
  return args_.separate && has_tensor(key + ".weight") && !has_tensor(key + ".q_weight") &&
         !has_tensor(key + ".qweight");
}

const std::string* LoadPlanner::pick(const std::string& prefix, const Names& names) const {
  for (const std::string& name : names) {
    if (has_weight_matrix(source(), join_name(prefix, name))) return &name;
  }
  return nullptr;
}

std::string LoadPlanner::key_of(const std::string& prefix, const Names& names) const {
  const std::string* found = pick(prefix, names);
  return join_name(prefix, found != nullptr ? *found : names.at(0));
}

std::vector<std::string> LoadPlanner::tensors_of(const std::string& key) const {
  std::vector<std::string> tensors;
  for (const char* suffix : {".weight", ".q_weight", ".q_scale", ".q_scale_max", ".q_groups",
                             ".q_invperm", ".qweight", ".qzeros", ".scales", ".g_idx", ".bias"}) {
    if (has_tensor(key + suffix)) tensors.push_back(key + suffix);
  }
  return tensors;
}

std::int32_t LoadPlanner::linear(const LoadTarget& target, const std::string& key,
                                 const LinearShape& shape) {
  LoadHints hints;
  hints.in = shape.in;
  hints.out = shape.out;
  hints.more_out = shape.more_out;
  hints.transposed = shape.transposed;
  hints.gptq = args_.gptq;
  // A backend that makes weights from seeds gets codes and plain rows without their bytes.
  const bool seeded = backend().makes_seeded() && !shape.transposed && !args_.for_shares;
  MatrixWork work;
  work.matrix = load_weight_matrix(
      seeded ? static_cast<const TensorSource&>(seeded_source_) : source(), key, hints);
  work.out = shape.out;
  work.reads_alone = true;
  LoadTask task{.target = target, .work = {}, .tensors = tensors_of(key)};
  task.key = key;
  task.stored = stored_bytes(work.matrix);
  task.packed = backend().packed_bytes(work.matrix, {.out = work.out});
  const std::int32_t id =
      add_linear(std::move(task), std::move(work),
                 {.module = key, .out = shape.out, .transposed = shape.transposed});
  add_site(key, {.in = shape.in,
                 .out = shape.out,
                 .parts = {{.linear = id, .count = shape.out}},
                 .replaceable = shape.replaceable});
  return id;
}

std::int32_t LoadPlanner::linear(const LoadTarget& target, PartLinear linear) {
  WeightMatrix& matrix = linear.matrix;
  const auto* dense = std::get_if<DenseMatrix>(&matrix);
  const std::int64_t stored_out = out_features(matrix);
  LoadTask task{.target = target, .work = {}, .tensors = std::move(linear.tensors)};
  MatrixWork work;
  work.out = linear.out > 0 ? linear.out : stored_out;
  task.stored = stored_bytes(matrix);
  if (!linear.rows.empty()) {
    work.out = std::ssize(linear.rows);
    task.stored =
        static_cast<std::size_t>(static_cast<double>(task.stored) *
                                 (static_cast<double>(work.out) / static_cast<double>(stored_out)));
  }
  if (dense == nullptr && !linear.rows.empty()) {
    work.cut = {ShardRule::kSplitOut, {linear.rows.begin(), linear.rows.end()}};
  }
  const WeightMatrix layout = cut_matrix(matrix, work.cut, CodeCopy::kLeftOut);
  task.packed = backend().packed_bytes(layout, {.out = work.out});
  if (linear.counted) task.stored = 0;
  const std::string module = dense != nullptr ? module_of(*dense) : name_of(matrix);
  task.key = linear.key.empty() ? module : std::move(linear.key);
  LinearOrigin origin{module, linear.rows, work.out, dense != nullptr && dense->transposed};
  if (dense != nullptr) work.rows = std::move(linear.rows);
  work.normalized = linear.normalized;
  work.matrix = std::move(matrix);
  return add_linear(std::move(task), std::move(work), std::move(origin));
}

WeightMatrix LoadPlanner::whole_matrix(const std::string& key, const LinearShape& shape) const {
  LoadHints hints;
  hints.in = shape.in;
  hints.out = shape.out;
  hints.transposed = shape.transposed;
  hints.gptq = args_.gptq;
  return load_weight_matrix(source(), key, hints);
}

std::int32_t LoadPlanner::add_linear(LoadTask task, MatrixWork work, LinearOrigin origin) {
  // A plain matrix that stays in the mapped file occupies memory all the same, but only once.
  if (task.packed == 0) task.packed = task.stored;
  if (!bias_of(work.matrix).view.empty()) {
    task.packed += backend().weight_bytes(static_cast<std::size_t>(work.out) * sizeof(float));
  }
  work.in = in_features(work.matrix);
  work.slots = backend().packed_inputs(work.matrix);
  work.quantized = !std::holds_alternative<DenseMatrix>(work.matrix);
  task.linear = static_cast<std::int32_t>(plan_.linears.size());
  task.work = std::move(work);
  const std::int32_t id = task.linear;
  plan_.linears.push_back(static_cast<std::int32_t>(plan_.tasks.size()));
  plan_.sites.add_origin(std::move(origin));
  add(std::move(task));
  return id;
}

void LoadPlanner::order_hidden(std::int32_t reader, std::initializer_list<std::int32_t> writers) {
  if (!backend().reorders_hidden() || args_.for_shares) return;
  auto* exl2 = std::get_if<Exl2Matrix>(&plan_.matrix(reader).matrix);
  const bool can = exl2 != nullptr && !std::is_sorted(exl2->perm.begin(), exl2->perm.end()) &&
                   std::none_of(writers.begin(), writers.end(), [&](std::int32_t writer) {
                     return writer >= 0 && !plan_.matrix(writer).quantized;
                   });
  if (!can) return;
  const std::vector<std::int32_t> order = exl2->perm;
  std::iota(exl2->perm.begin(), exl2->perm.end(), 0);
  plan_.sites.order_inputs(reader, order);
  for (const std::int32_t writer : writers) {
    if (writer < 0) continue;
    MatrixWork& work = plan_.matrix(writer);
    const auto count = static_cast<std::int32_t>(order.size());
    for (std::int32_t first = 0; first < work.out; first += count) {
      for (const std::int32_t channel : order) work.columns.push_back(first + channel);
    }
    BL_CHECK(std::ssize(work.columns) == work.out);
    plan_.sites.order_outputs(writer, work.columns);
  }
}

std::string LoadPlanner::first_existing(const std::string& prefix, const Names& names) const {
  std::string tried;
  for (const std::string& name : names) {
    const std::string full = join_name(prefix, name);
    if (has_tensor(full)) return full;
    tried += (tried.empty() ? "" : ", ") + full;
  }
  fail_missing(tried);
}

void LoadPlanner::fail_missing(const std::string& tried) const {
  // The path of any file of the model tells the user which model is meant.
  const std::vector<std::string> names = source().names();
  const TensorInfo* first = names.empty() ? nullptr : source().find(names.front());
  const std::filesystem::path file = first == nullptr ? "the model" : first->file;
  const bool is_folder = file.extension() == ".safetensors" && file.has_parent_path();
  fail(ErrorCode::kNotFound, "{}: no tensor {}, which this architecture needs",
       is_folder ? file.parent_path().string() : file.string(), tried);
}

const TensorInfo& LoadPlanner::check_floats(const std::string& tensor) const {
  const TensorInfo* info = source().find(tensor);
  if (info == nullptr) fail_missing(tensor);
  if (info->dtype != DType::kF32 && info->dtype != DType::kF16 && info->dtype != DType::kBF16) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is {}, must be F32, F16 or BF16", info->file,
         tensor, name_of(info->dtype));
  }
  return *info;
}

VectorWork LoadPlanner::find_vector(const TensorNames& names) {
  const std::string name = first_existing(names.prefix, names.names);
  const TensorInfo& info = check_floats(name);
  if (std::find(names.shapes.begin(), names.shapes.end(), info.shape) == names.shapes.end()) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} has shape {}, must be {} as the config says",
         info.file, name, info.shape.to_string(), shapes_text(names.shapes));
  }
  // Layers always see the first of the equivalent shapes.
  const Shape* shape =
      std::find_if(names.shapes.begin(), names.shapes.end(),
                   [&](const Shape& one) { return one.elements() == info.shape.elements(); });
  return {name, *shape};
}

std::size_t LoadPlanner::vector_bytes(const VectorWork& vector) const {
  return backend().weight_bytes(static_cast<std::size_t>(vector.shape.elements()) * sizeof(float));
}

void LoadPlanner::vector(const LoadTarget& target, const TensorNames& names) {
  VectorWork work = find_vector(names);
  LoadTask task{.target = target, .work = {}, .tensors = {work.tensor}};
  task.packed = vector_bytes(work);
  task.work = std::move(work);
  add(std::move(task));
}

void LoadPlanner::norm(const LoadTarget& target, const NormSpec& spec, const TensorNames& names) {
  LoadTask task{.target = target, .work = NormWork{spec, {}, {}}};
  NormWork& work = std::get<NormWork>(task.work);
  const auto read = [&](VectorWork vector) {
    task.tensors.push_back(vector.tensor);
    task.packed += vector_bytes(vector);
    return vector;
  };
  if (spec.weighted) {
    Names weights;
    for (const std::string& name : names.names) weights.push_back(name + ".weight");
    work.weight = read(find_vector({names.prefix, weights, names.shapes}));
    const std::string& found = work.weight.tensor;
    const Names bias{found.substr(0, found.size() - std::string_view("weight").size()) + "bias"};
    if (has_tensor(bias[0])) work.bias = read(find_vector({"", bias, names.shapes}));
  }
  add(std::move(task));
}

void LoadPlanner::norm_of_scale(const LoadTarget& target, const NormSpec& spec,
                                const TensorNames& weight) {
  VectorWork found = find_vector(weight);
  LoadTask task{.target = target, .work = {}, .tensors = {found.tensor}};
  task.packed = vector_bytes(found);
  task.work = NormWork{spec, std::move(found), {}};
  add(std::move(task));
}

void LoadPlanner::values(const LoadTarget& target, std::vector<float> values) {
  const Shape shape{std::ssize(values)};
  LoadTask task{.target = target, .work = {}};
  task.packed = backend().weight_bytes(values.size() * sizeof(float));
  task.work = ValuesWork{std::move(values), shape};
  add(std::move(task));
}

float LoadPlanner::read_scalar(const std::string& prefix, const Names& names) {
  const VectorWork found = find_vector({prefix, names, {Shape{1}, Shape{}}});
  plan_.tensors.insert(found.tensor);
  const HostArray array = source().read(found.tensor);
  return visit_float_dtype(array.view.dtype, [&]<class T>(Tag<T>) {
    return static_cast<float>(*array.view.as<const T>());
  });
}

void LoadPlanner::scalar(const LoadTarget& target, float value) {
  add({.target = target, .work = ScalarWork{value}});
}

void LoadPlanner::table(const LoadTarget& target, const std::string& tensor,
                        const TableShape& shape) {
  const TensorInfo& info = check_floats(tensor);
  if (info.shape.rank() != 2 || info.shape[0] < shape.least_rows || info.shape[1] != shape.width) {
    fail(ErrorCode::kInvalidFile,
         "{}: tensor {} has shape {}, must be [{} or more, {}] as the config says", info.file,
         tensor, info.shape.to_string(), shape.least_rows, shape.width);
  }
  LoadTask task{.target = target,
                .work = TableWork{tensor, shape.on_host && !backend().reads_host_memory()},
                .tensors = {tensor}};
  task.stored = static_cast<std::size_t>(info.shape.elements()) * size_of(info.dtype);
  if (std::get<TableWork>(task.work).on_host) {
    task.on_host = task.stored;
  } else {
    task.packed = backend().weight_bytes(task.stored);
  }
  add(std::move(task));
}

void LoadPlanner::expert_table(const LoadTarget& target, std::int64_t experts) {
  LoadTask task{.target = target, .work = ExpertTableWork{}};
  task.packed = backend().expert_table_bytes(experts);
  add(std::move(task));
}

}  // namespace bl
