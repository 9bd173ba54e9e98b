#include "convert/fused_gptq.h"

#include <cstring>
#include <map>

#include "base/check.h"
#include "convert/linear_source.h"
#include "format/bit_codec.h"

namespace bl {

std::vector<FusedModule> fused_modules(const ModelLoader& loader) {
  const LoadPlan& plan = loader.load_plan();
  std::map<std::string, FusedModule> modules;
  for (const LoadTask& task : plan.tasks) {
    if (!is_fused_part(task) || !is_quantized(loader, task)) continue;
    const auto& work = std::get<MatrixWork>(task.work);
    FusedModule& module = modules[plan.sites.origin(task.linear).module];
    module.in = work.in;
    module.out = out_features(work.matrix);
    module.parts.push_back({task.key, work.rows});
  }
  std::vector<FusedModule> result;
  for (auto& [key, module] : modules) {
    module.key = key;
    result.push_back(std::move(module));
  }
  return result;
}

FusedGptq::FusedGptq(const FusedModule& module, const TensorSource& file)
    : module_(module), file_(file) {
  const std::string& first = module.parts.front().key;
  bits_ = file.find(first + ".qzeros")->shape[1] * 32 / file.find(first + ".scales")->shape[1];
}

std::vector<TensorPlan> FusedGptq::plans() const {
  const std::string& first = module_.parts.front().key;
  const std::int64_t groups = file_.find(first + ".scales")->shape[0];
  const auto plan = [&](const char* suffix, DType dtype, const Shape& shape) {
    return plan_tensor(module_.key + suffix, dtype, shape);
  };
  return {plan(".qweight", DType::kI32, {module_.in * bits_ / 32, module_.out}),
          plan(".qzeros", DType::kI32, {groups, module_.out * bits_ / 32}),
          plan(".scales", DType::kF16, {groups, module_.out}),
          plan(".g_idx", DType::kI32, {module_.in})};
}

// Each column of a part where the module has that output.
template <class T>
std::vector<std::byte> FusedGptq::columns(const TensorPlan& plan, const char* suffix) const {
  std::vector<std::byte> bytes(plan.bytes());
  auto* to = reinterpret_cast<T*>(bytes.data());
  for (const FusedModule::Part& part : module_.parts) {
    const HostArray array = file_.read(part.key + suffix);
    BL_CHECK(array.view.rows() == plan.shape[0]);
    for (std::int64_t row = 0; row < array.view.rows(); ++row) {
      const T* from = array.view.row<const T>(row);
      for (std::size_t i = 0; i < part.rows.size(); ++i) {
        to[row * module_.out + part.rows[i]] = from[i];
      }
    }
  }
  return bytes;
}

std::vector<std::byte> FusedGptq::zeros(const TensorPlan& plan) const {
  std::vector<std::byte> bytes(plan.bytes());
  auto* to = reinterpret_cast<std::uint32_t*>(bytes.data());
  const auto bits = static_cast<int>(bits_);
  for (const FusedModule::Part& part : module_.parts) {
    const HostArray array = file_.read(part.key + ".qzeros");
    BL_CHECK(array.view.rows() == plan.shape[0]);
    for (std::int64_t row = 0; row < array.view.rows(); ++row) {
      const auto* from = array.view.row<const std::uint32_t>(row);
      for (std::size_t i = 0; i < part.rows.size(); ++i) {
        const std::uint32_t zero = read_code(from, 1, static_cast<std::int64_t>(i), bits);
        write_code(to + row * plan.shape[1], 1, part.rows[i], bits, zero);
      }
    }
  }
  return bytes;
}

std::vector<std::byte> FusedGptq::groups() const {
  const std::size_t size = static_cast<std::size_t>(module_.in) * sizeof(std::int32_t);
  std::vector<std::byte> bytes(size);
  for (const FusedModule::Part& part : module_.parts) {
    const HostArray own = file_.read(part.key + ".g_idx");
    BL_CHECK(own.view.shape == Shape{module_.in});
    if (&part == &module_.parts.front()) std::memcpy(bytes.data(), own.view.data, size);
    BL_CHECK(std::memcmp(bytes.data(), own.view.data, size) == 0);
  }
  return bytes;
}

std::vector<std::byte> FusedGptq::bytes_of(const TensorPlan& plan) const {
  const std::string suffix = plan.name.substr(module_.key.size());
  if (suffix == ".qweight") return columns<std::uint32_t>(plan, ".qweight");
  if (suffix == ".scales") return columns<std::uint16_t>(plan, ".scales");
  return suffix == ".qzeros" ? zeros(plan) : groups();
}

}  // namespace bl
