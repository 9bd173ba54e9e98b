#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/adapter_packer.h"
#include "model/model_loader.h"
#include "ops/backend.h"
#include "ops/kv_layout.h"

namespace bl::test {

// The elements of a tensor.
template <class T>
std::vector<T> values_of(const TensorSource& source, const std::string& name) {
  const HostArray array = source.read(name);
  const T* data = array.view.as<const T>();
  return {data, data + array.view.shape.elements()};
}

struct GoldenPrompt {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids, vocab]
};

// A folder with a model and golden.safetensors: ids_N and logits_N.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& folder);
  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<GoldenPrompt>& prompts() const { return prompts_; }

 private:
  std::filesystem::path folder_;
  std::vector<GoldenPrompt> prompts_;
};

// Where the goldens NAME are: unpacked from tests/data.
std::filesystem::path golden_folder(const std::string& name);
// Its models, sorted.
std::vector<std::string> golden_names(const std::string& name);
// All models of some of them: "hf-tiny/llama" is an archive of goldens and a folder in it.
std::vector<std::string> golden_models(std::initializer_list<const char*> archives);
// The same models, but every fourth under sanitizers, where loading one takes a second: for what
// varies less than architectures do, all of which `Goldens` runs.
std::vector<std::string> sampled_golden_models(std::initializer_list<const char*> archives);
std::filesystem::path model_folder(const std::string& model);
// Such a name as a test's.
std::string case_name(std::string model);

// A model on a backend with pages of its own.
class GoldenRun {
 public:
  GoldenRun(const std::string& backend, ModelFiles files, CacheType cache,
            LoadOptions options = {});
  GoldenRun(std::unique_ptr<Backend> backend, ModelFiles files, CacheType cache,
            LoadOptions options = {});
  GoldenRun(const std::string& backend, const std::filesystem::path& folder, CacheType cache,
            LoadOptions options = {})
      : GoldenRun(backend, open_model_folder(folder), cache, std::move(options)) {}

  Model& model() { return *model_; }
  Backend& backend() { return *backend_; }
  // An adapter as PEFT saves it, read for this model; pack() brings it into backend()'s memory.
  PreparedAdapter prepare_adapter(const std::filesystem::path& folder) const;
  // Steps run with these from now on, instead of the backend's.
  void use(const OpTable& ops) { ops_ = &ops; }
  // Logits [tokens, vocab] of each prompt; all prompts in one step. `mixes`: adapters of each, or
  // none.
  std::vector<std::vector<float>> logits(const std::vector<std::vector<std::int32_t>>& prompts,
                                         const std::vector<AdapterMix>& mixes = {});
  // Logits of one prompt computed in steps of `chunk` tokens; only of the positions of which
  // `wanted` is true, where it is given.
  using Wanted = std::function<bool(std::int32_t)>;
  std::vector<float> chunked_logits(const std::vector<std::int32_t>& ids, std::int32_t chunk,
                                    const AdapterMix* adapters = nullptr,
                                    const Wanted& wanted = nullptr);

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  CacheType cache_;
  const OpTable* ops_;
};

// `count` ids of all over a vocabulary.
std::vector<std::int32_t> some_ids(std::int64_t count, std::int64_t vocab);

// The first card's; empty where this build has no CUDA or this machine no card.
std::string cuda_backend();

double deviation(const std::vector<float>& values);
double largest_difference(const std::vector<float>& a, const std::vector<float>& b);
double median_difference(const std::vector<float>& a, const std::vector<float>& b);
// Mean over rows of KL(softmax(golden) ‖ softmax(logits)).
double mean_kl(const std::vector<float>& logits, const std::vector<float>& golden,
               std::size_t vocab);

}  // namespace bl::test
