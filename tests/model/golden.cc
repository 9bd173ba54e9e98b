#include "model/golden.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <numeric>

#include "backend/registry.h"
#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "format/safetensors_folder.h"
#include "support/data.h"

namespace bl::test {
Golden::Golden(const std::filesystem::path& folder) : folder_(folder) {
  const SafetensorsFolder source(folder / "golden.safetensors");
  for (int i = 0;; ++i) {
    const std::string number = std::to_string(i);
    if (source.find("ids_" + number) == nullptr) break;
    const auto ids = values_of<std::int64_t>(source, "ids_" + number);
    prompts_.push_back({{ids.begin(), ids.end()}, values_of<float>(source, "logits_" + number)});
  }
}

std::filesystem::path golden_folder(const std::string& name) { return unpacked(name.c_str()); }

std::vector<std::string> golden_names(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder(name))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> golden_models(std::initializer_list<const char*> archives) {
  std::vector<std::string> models;
  for (const char* archive : archives) {
    for (const std::string& name : golden_names(archive)) {
      models.push_back(std::string(archive) + "/" + name);
    }
  }
  return models;
}

std::vector<std::string> sampled_golden_models(std::initializer_list<const char*> archives) {
  const std::vector<std::string> all = golden_models(archives);
  constexpr std::size_t kStride = BL_SANITIZED ? 4 : 1;
  std::vector<std::string> models;
  for (std::size_t i = 0; i < all.size(); i += kStride) models.push_back(all[i]);
  return models;
}

std::filesystem::path model_folder(const std::string& model) {
  const std::filesystem::path path(model);
  return golden_folder(path.parent_path().string()) / path.filename();
}

std::string case_name(std::string model) {
  for (char& c : model) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return model;
}

GoldenRun::GoldenRun(const std::string& backend, ModelFiles files, CacheType cache,
                     LoadOptions options)
    : GoldenRun(open_backend(backend, {}), std::move(files), cache, std::move(options)) {}

GoldenRun::GoldenRun(std::unique_ptr<Backend> backend, ModelFiles files, CacheType cache,
                     LoadOptions options)
    : backend_(std::move(backend)), cache_(cache), ops_(&backend_->ops()) {
  model_ = load_model(*backend_, std::move(files), std::move(options));
}

PreparedAdapter GoldenRun::prepare_adapter(const std::filesystem::path& folder) const {
  return PreparedAdapter(
      read_peft_adapter(folder, model_->adapter_sites(), CheckpointNames(*model_->spec().arch)));
}

std::vector<std::vector<float>> GoldenRun::logits(
    const std::vector<std::vector<std::int32_t>>& prompts, const std::vector<AdapterMix>& mixes) {
  std::int32_t pages = 0;
  std::int64_t tokens = 0;
  for (const auto& ids : prompts) {
    pages += KvCache::pages_for(static_cast<std::int64_t>(ids.size()));
    tokens += static_cast<std::int64_t>(ids.size());
  }
  KvCache cache(*backend_, model_->kv_layouts(cache_), pages);
  std::vector<PageTable> tables;
  StepBatch batch;
  for (const auto& ids : prompts) {
    PageTable& table = tables.emplace_back(cache.pool());
    const auto length = static_cast<std::int32_t>(ids.size());
    BL_CHECK(table.reserve(length));
    BatchSequence sequence;
    sequence.first_token = static_cast<std::int32_t>(batch.ids.size());
    sequence.tokens = length;
    sequence.pages.assign(table.pages().begin(), table.pages().end());
    sequence.reach = length;
    if (!mixes.empty()) sequence.adapters = &mixes[batch.sequences.size()];
    for (std::int32_t i = 0; i < length; ++i) {
      batch.logit_rows.push_back(static_cast<std::int32_t>(batch.ids.size()));
      batch.ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch.positions.push_back(i);
      batch.slots.push_back(table.slot(i));
    }
    batch.sequences.push_back(std::move(sequence));
  }
  Arena scratch(backend_->allocate(model_->work_bytes(tokens, tokens)));
  ExecContext ctx = backend_->context(scratch);
  ctx.ops = ops_;
  const TensorView logits = model_->forward(ctx, batch, cache.layers());
  Tensor host = make_host_tensor(DType::kF32, logits.shape);
  backend_->download(host.view(), logits);
  std::vector<std::vector<float>> result;
  for (const BatchSequence& sequence : batch.sequences) {
    const float* first = host.view().row<float>(sequence.first_token);
    result.emplace_back(first, first + sequence.tokens * model_->vocab());
  }
  return result;
}

std::vector<float> GoldenRun::chunked_logits(const std::vector<std::int32_t>& ids,
                                             std::int32_t chunk, const AdapterMix* adapters,
                                             const Wanted& wanted) {
  const auto length = static_cast<std::int32_t>(ids.size());
  KvCache cache(*backend_, model_->kv_layouts(cache_), KvCache::pages_for(length));
  PageTable table(cache.pool());
  Arena scratch(backend_->allocate(model_->work_bytes(chunk, chunk)));
  ExecContext ctx = backend_->context(scratch);
  ctx.ops = ops_;
  std::vector<float> result;
  for (std::int32_t begin = 0; begin < length; begin += chunk) {
    ArenaScope scope(scratch);
    const std::int32_t end = std::min(begin + chunk, length);
    BL_CHECK(table.reserve(end));
    StepBatch batch;
    BatchSequence sequence;
    sequence.tokens = end - begin;
    sequence.past = begin;
    sequence.pages.assign(table.pages().begin(), table.pages().end());
    sequence.reach = length;
    sequence.adapters = adapters;
    for (std::int32_t i = begin; i < end; ++i) {
      if (!wanted || wanted(i)) batch.logit_rows.push_back(i - begin);
      batch.ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch.positions.push_back(i);
      batch.slots.push_back(table.slot(i));
    }
    batch.sequences.push_back(std::move(sequence));
    const TensorView logits = model_->forward(ctx, batch, cache.layers());
    if (logits.rows() == 0) continue;
    Tensor host = make_host_tensor(DType::kF32, logits.shape);
    backend_->download(host.view(), logits);
    const float* first = host.view().as<float>();
    result.insert(result.end(), first, first + host.view().shape.elements());
  }
  return result;
}

std::vector<std::int32_t> some_ids(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * 37 + 11) % vocab));
  }
  return ids;
}

std::string cuda_backend() {
  for (const std::string& name : backend_names()) {
    if (name == "cuda:0") return name;
  }
  return "";
}

double deviation(const std::vector<float>& values) {
  double sum = 0.0;
  double squares = 0.0;
  for (float v : values) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(squares / n - (sum / n) * (sum / n), 0.0));
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    // A NaN compares false with everything: it must fail, not pass.
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

double median_difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) {
    differences.push_back(std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  std::nth_element(differences.begin(), differences.begin() + std::ssize(differences) / 2,
                   differences.end());
  return differences[differences.size() / 2];
}

double mean_kl(const std::vector<float>& logits, const std::vector<float>& golden,
               std::size_t vocab) {
  const auto log_sum = [&](const float* row) {
    double largest = -INFINITY;
    for (std::size_t i = 0; i < vocab; ++i) largest = std::max(largest, double{row[i]});
    double sum = 0.0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{row[i]} - largest);
    return largest + std::log(sum);
  };
  double total = 0.0;
  const std::size_t rows = golden.size() / vocab;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* g = golden.data() + r * vocab;
    const float* l = logits.data() + r * vocab;
    const double g_sum = log_sum(g);
    const double l_sum = log_sum(l);
    for (std::size_t i = 0; i < vocab; ++i) {
      const double p = double{g[i]} - g_sum;
      total += std::exp(p) * (p - (double{l[i]} - l_sum));
    }
  }
  return total / static_cast<double>(rows);
}

}  // namespace bl::test
