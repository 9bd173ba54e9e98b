#include <cstring>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/nearest_name.h"
#include "command.h"
#include "engine/open_model.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "model/model_path.h"
#include "tensor_output.h"
#include "usage_error.h"

namespace bl {
namespace {

struct DequantOptions {
  std::string model;
  std::string tensor;
  std::string out;
  std::string archs;

  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    v(tensor, {"--tensor", "KEY", "the matrix to decode, such as model.layers.0.self_attn.q_proj"});
    v(out, {"-o,--out", "OUT.safetensors", "the file to write", "standard output"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
  }
};

// Opens the tensors of a model, and what its config says about their format. A folder without a
// config will do.
ModelFiles open_tensors(const DequantOptions& options) {
  const std::filesystem::path folder = options.model;
  if (std::filesystem::is_directory(folder) && !std::filesystem::exists(folder / "config.json") &&
      resolve_model_path(folder).gguf.empty()) {
    ModelFiles files;
    files.source = std::make_shared<SafetensorsFolder>(folder);
    files.gptq = read_gptq_config(folder, Json::object());
    return files;
  }
  return open_model(folder, options.archs).files;
}

WeightMatrix find_matrix(const ModelFiles& files, const std::string& key) {
  LoadHints hints;
  hints.gptq = files.gptq ? &*files.gptq : nullptr;
  if (!has_weight_matrix(*files.source, key)) {
    std::vector<std::string> keys;
    for (const std::string& name : files.source->names()) {
      const std::string owner = name.substr(0, name.rfind('.'));
      if ((keys.empty() || keys.back() != owner) && has_weight_matrix(*files.source, owner)) {
        keys.push_back(owner);
      }
    }
    fail(ErrorCode::kNotFound,
         "--tensor: the model has no matrix {} (there is no .q_weight, .qweight or .weight of that "
         "name){}",
         key, did_you_mean(key, keys));
  }
  return load_weight_matrix(*files.source, key, hints);
}

// The output replaces a file of its name, which must be none that is read.
void check_is_no_input(const DequantOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (options.out.empty() || !fs::exists(options.out, error)) return;
  const fs::path out = fs::canonical(options.out), model = fs::canonical(options.model, error);
  if (!error && (out == model || out.parent_path() == model)) {
    fail_usage("-o: {} is a file of the model; give another name", options.out);
  }
}

void dequant(DequantOptions& options) {
  if (options.model.empty()) fail_usage("-m DIR is missing: the model folder or .gguf file");
  if (options.tensor.empty()) fail_usage("--tensor KEY is missing: the matrix to decode");
  check_output(options.out);
  check_is_no_input(options);
  const WeightMatrix matrix = find_matrix(open_tensors(options), options.tensor);
  const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
  NamedTensor weight{
      "weight", make_host_tensor(DType::kF16, Shape{in_features(matrix), out_features(matrix)})};
  std::memcpy(weight.tensor.view().data, halves.data(), halves.size() * sizeof(halves[0]));
  std::vector<NamedTensor> tensors;
  tensors.push_back(std::move(weight));
  write_tensors(options.out, tensors);
}

}  // namespace

Command dequant_command() {
  return make_command<DequantOptions>(
      {"dequant",
       "-m DIR --tensor KEY [-o OUT.safetensors]",
       "Decode one matrix to F16 [in, out], rounded exactly as its format says",
       {{"Write one matrix of a quantized model as 16-bit numbers",
         "bitloom dequant -m DIR --tensor model.layers.0.self_attn.q_proj -o q_proj.safetensors"}}},
      dequant);
}

}  // namespace bl
