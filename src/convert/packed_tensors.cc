#include "convert/packed_tensors.h"

#include "base/error.h"
#include "convert/planned_model.h"
#include "format/exl2.h"
#include "format/gptq.h"

namespace bl {
namespace {

class TensorList {
 public:
  explicit TensorList(const std::string& key) : key_(key) {}

  template <class T>
  void add(const char* name, DType dtype, const Shape& shape, std::vector<T> values) {
    add(plan_tensor(key_ + name, dtype, shape), std::move(values));
  }
  template <class T>
  void add(TensorPlan plan, std::vector<T> values) {
    const auto held = std::make_shared<std::vector<T>>(std::move(values));
    tensors_.push_back({std::move(plan), std::as_writable_bytes(std::span(*held)), held});
  }
  const std::string& key() const { return key_; }
  std::vector<PackedTensor> take() { return std::move(tensors_); }

 private:
  const std::string& key_;
  std::vector<PackedTensor> tensors_;
};

void add_tensors(const RoundedMatrix& matrix, const HostThreads& threads, TensorList& list) {
  Exl2Tensors tensors = pack_exl2(matrix, threads);
  std::vector<TensorPlan> plans = exl2_tensors({list.key(), matrix.in, matrix.out, matrix.groups});
  std::size_t next = 0;  // in the order of exl2_tensors()
  const auto add = [&](auto& values) { list.add(std::move(plans.at(next++)), std::move(values)); };
  add(tensors.q_weight);
  add(tensors.q_groups);
  add(tensors.q_scale);
  add(tensors.q_scale_max);
  add(tensors.q_invperm);
}

void add_tensors(const GptqRounded& matrix, const HostThreads&, TensorList& list) {
  GptqTensors tensors = pack_gptq(matrix);
  const auto groups = std::ssize(matrix.groups);
  const std::int64_t out = matrix.out;
  const Shape weight{std::ssize(tensors.qweight) / out, out};
  const Shape zeros{groups, std::ssize(tensors.qzeros) / groups};
  const Shape channels{std::ssize(tensors.g_idx)};
  list.add(".qweight", DType::kI32, weight, std::move(tensors.qweight));
  list.add(".qzeros", DType::kI32, zeros, std::move(tensors.qzeros));
  list.add(".scales", DType::kF16, {groups, out}, std::move(tensors.scales));
  list.add(".g_idx", DType::kI32, channels, std::move(tensors.g_idx));
}

}  // namespace

PackedSource::PackedSource(std::vector<PackedTensor> tensors) {
  for (PackedTensor& tensor : tensors) {
    TensorInfo info{tensor.plan.dtype, {}, "the conversion"};
    for (const std::int64_t size : tensor.plan.shape) info.shape.append(size);
    const std::string name = tensor.plan.name;
    tensors_[name] = {info, std::move(tensor)};
  }
}

const TensorInfo* PackedSource::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() ? &found->second.info : nullptr;
}

std::vector<std::string> PackedSource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, held] : tensors_) names.push_back(name);
  return names;
}

HostArray PackedSource::read(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(ErrorCode::kNotFound, "there is no tensor {}", name);
  const Held& held = found->second;
  return {view_of(held.tensor.bytes.data(), held.info.dtype, held.info.shape), held.tensor.owner};
}

PackedLinear packed_linear(const std::string& key, const QuantizedMatrix& matrix,
                           const HostThreads& threads) {
  const SlotCodes& codes = codes_of(matrix);
  const auto weights = static_cast<double>(codes.in * codes.out);
  return {packed_tensors(key, matrix, threads), format_tag(matrix),
          static_cast<double>(stored_bits(matrix)) / weights};
}

WeightMatrix weight_matrix(const std::string& key, const PackedLinear& linear) {
  return load_packed(PackedSource(linear.tensors), key, linear.format);
}

std::vector<PackedTensor> packed_tensors(const std::string& key, const QuantizedMatrix& matrix,
                                         const HostThreads& threads) {
  TensorList list(key);
  std::visit([&](const auto& rounded) { add_tensors(rounded, threads, list); }, matrix);
  return list.take();
}

std::int64_t stored_bits(const QuantizedMatrix& matrix) {
  if (const auto* gptq = std::get_if<GptqRounded>(&matrix)) return stored_bits(*gptq);
  const SlotCodes& codes = codes_of(matrix);
  return stored_bits(codes.groups, codes.in, codes.out);
}

std::string format_tag(const QuantizedMatrix& matrix) {
  const auto* gptq = std::get_if<GptqRounded>(&matrix);
  return gptq == nullptr ? "exl2" : gptq->v2 ? "gptq_v2" : "gptq";
}

WeightMatrix load_packed(const TensorSource& source, const std::string& key,
                         const std::string& format) {
  if (format.empty() || format == "exl2") return load_exl2_matrix(source, key);
  GptqConfig config;
  config.file = "the conversion";
  config.symmetric = false;  // the tag is right, whatever the zero points look like
  config.v2 = format == "gptq_v2";
  return load_gptq_matrix(source, key, &config);
}

}  // namespace bl
