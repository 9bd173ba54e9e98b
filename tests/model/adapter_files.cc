#include "model/adapter_files.h"

#include <random>

#include "base/file.h"
#include "format/safetensors_writer.h"

namespace bl::test {
namespace {

std::vector<float> random_values(std::int64_t count, float spread, std::size_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

AdapterTensor random_tensor(const Shape& shape, float spread, DType dtype, std::size_t seed) {
  return {shape, random_values(shape.elements(), spread, seed), dtype};
}

}  // namespace

AdapterFiles::AdapterFiles() {
  config = {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"r", 4},
            {"lora_alpha", 8},
            {"bias", "none"},
            {"target_modules", "all-linear"},
            {"use_rslora", false},
            {"rank_pattern", OrderedJson::object()},
            {"modules_to_save", {}},
            {"alpha_pattern", OrderedJson::object()}};
  config["modules_to_save"] = nullptr;
}

void AdapterFiles::add(const std::string& module, const Size& size, DType dtype) {
  const std::string name = "base_model.model." + module + ".lora_";
  const std::size_t seed = std::hash<std::string>()(module);
  tensors[name + "A.weight"] = random_tensor({size.rank, size.in}, 0.2f, dtype, seed);
  tensors[name + "B.weight"] = random_tensor({size.out, size.rank}, 0.1f, dtype, seed + 1);
}

void AdapterFiles::add_embedding(const std::string& module, const Size& size) {
  const std::string name = "base_model.model." + module + ".lora_embedding_";
  tensors[name + "A"] = random_tensor({size.rank, size.in}, 0.3f, DType::kF32, 3);
  tensors[name + "B"] = random_tensor({size.out, size.rank}, 0.3f, DType::kF32, 4);
}

void AdapterFiles::add_whole(const std::string& module, const Shape& shape, bool named) {
  tensors["base_model.model." + module + ".weight"] =
      random_tensor(shape, 0.1f, DType::kF16, std::hash<std::string>()(module));
  if (!named) return;
  if (config["modules_to_save"].is_null()) config["modules_to_save"] = OrderedJson::array();
  config["modules_to_save"].push_back(module.substr(module.rfind('.') + 1));
}

void AdapterFiles::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "adapter_config.json", json_text(config, 1));
  std::vector<TensorPlan> plans;
  for (const auto& [name, tensor] : tensors) {
    plans.push_back(plan_tensor(name, tensor.dtype, tensor.shape));
  }
  SafetensorsWriter writer(folder / "adapter_model.safetensors", plans, {{"format", "pt"}});
  for (const TensorPlan& plan : writer.tensors()) {
    const AdapterTensor& tensor = tensors.at(plan.name);
    if (plan.dtype != DType::kF32 && plan.dtype != DType::kF16 && plan.dtype != DType::kBF16) {
      writer.write(std::vector<std::byte>(plan.bytes()));
      continue;
    }
    visit_float_dtype(plan.dtype, [&]<class T>(Tag<T>) {
      std::vector<T> values;
      for (const float value : tensor.values) values.push_back(static_cast<T>(value));
      writer.write(std::as_bytes(std::span(values)));
    });
  }
  writer.commit();
}

}  // namespace bl::test
