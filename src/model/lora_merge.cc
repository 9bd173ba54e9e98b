#include "model/lora_merge.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pending_folder.h"
#include "base/thread_pool.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_writer.h"
#include "model/model_loader.h"
#include "model/peft_adapter.h"
#include "tensor/float16.h"

namespace bl {
namespace {

constexpr std::int64_t kPieceRows = 256;

// What one module of an adapter adds to the rows of one tensor.
struct Delta {
  const LoraModule* module = nullptr;
  float scale = 0;
  // For each row of the tensor, the row of B (for an embedding, the column of A); −1: none.
  std::vector<std::int32_t> source;
};
using Deltas = std::vector<Delta>;

float value_at(const TensorView& view, std::int64_t row, std::int64_t column) {
  float value = 0;
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    value = static_cast<float>(view.row<const T>(row)[column]);
  });
  return value;
}

// sum[i] += factor · row[i]
void add_scaled(const TensorView& rows, std::int64_t row, float factor, float* sum) {
  visit_float_dtype(rows.dtype, [&]<class T>(Tag<T>) {
    const T* from = rows.row<const T>(row);
    for (std::int64_t i = 0; i < rows.columns(); ++i) {
      sum[i] += factor * static_cast<float>(from[i]);
    }
  });
}

// Whether the adapter brings a whole row in place of this row of the tensor.
bool replaces(const Delta& delta, std::int64_t row) {
  return delta.module->is_whole() && row < std::ssize(delta.source) &&
         delta.source[static_cast<std::size_t>(row)] >= 0;
}

// Adds to `sum` what `delta` adds to one row of the tensor.
void add_delta(const Delta& delta, std::int64_t row, float* sum) {
  if (row >= std::ssize(delta.source)) return;
  const std::int64_t source = delta.source[static_cast<std::size_t>(row)];
  if (source < 0) return;
  const LoraModule& module = *delta.module;
  if (module.is_whole()) return add_scaled(module.whole.view, source, delta.scale, sum);
  for (std::int64_t r = 0; r < module.rank(); ++r) {
    if (!module.site->is_embedding) {
      add_scaled(module.a.view, r, delta.scale * value_at(module.b.view, source, r), sum);
      continue;
    }
    const float factor = delta.scale * value_at(module.a.view, r, source);
    for (std::int64_t i = 0; i < module.site->out; ++i) {
      sum[i] += factor * value_at(module.b.view, i, r);
    }
  }
}

// What a tensor of the result is made from.
struct Output {
  std::string from;    // tensor of the base model; for a quantized matrix, its module
  std::string module;  // the architecture's name of the module whose deltas it gets
  bool quantized = false;
  bool transposed = false;  // stored [in, out]
};

class AdapterMerge {
 public:
  AdapterMerge(Backend& backend, const LoraMergeArgs& args)
      : args_(args),
        backend_(backend),
        loader_(backend, args.base, {.spec = {}, .archs = args.archs, .progress = {}}),
        arch_(*loader_.spec().arch),
        names_(arch_),
        source_(*args.base.source, names_) {
    for (const LoraMergeArgs::Adapter& adapter : args.adapters) {
      adapters_.push_back(read_peft_adapter(adapter.folder, loader_.adapter_sites(), names_));
      for (const LoraModule& module : adapters_.back().modules) {
        collect(module, static_cast<float>(adapter.weight * module.scale));
      }
    }
  }

  LoraMergeResult write() {
    std::vector<TensorPlan> plans = plan();
    LoraMergeResult result;
    for (const TensorPlan& plan : plans) result.bytes += static_cast<std::int64_t>(plan.bytes());
    result.tensors = static_cast<std::int64_t>(plans.size());
    check_space(args_.folder, static_cast<std::uint64_t>(result.bytes));
    ShardOptions options;
    options.max_bytes = args_.shard_bytes;
    options.metadata = {{"format", "pt"}};
    ShardWriter writer(args_.folder, std::move(plans), options);
    std::int64_t done = 0;
    for (const TensorPlan& plan : writer.tensors()) {
      const Output& output = outputs_.at(plan.name);
      const auto deltas = deltas_.find(output.module);
      result.changed += deltas != deltas_.end() ? 1 : 0;
      write_tensor(plan, output, deltas != deltas_.end() ? &deltas->second : nullptr,
                   [&](std::span<const std::byte> bytes) {
                     writer.write(bytes);
                     done += static_cast<std::int64_t>(bytes.size());
                     if (args_.progress) args_.progress(done, result.bytes);
                   });
    }
    writer.commit();
    write_config();
    return result;
  }

 private:
  using Sink = std::function<void(std::span<const std::byte>)>;

  const std::string& head_name() const { return arch_.head.at(0); }

  void collect(const LoraModule& module, float scale) {
    const AdapterSite& site = *module.site;
    if (site.is_embedding) {
      Delta delta{&module, scale, std::vector<std::int32_t>(static_cast<std::size_t>(site.in))};
      std::iota(delta.source.begin(), delta.source.end(), 0);
      deltas_[module.name].push_back(std::move(delta));
      parted_ = parted_ || is_tied();
    }
    for (const AdapterPart& part : site.parts) {
      const LinearOrigin& origin = loader_.adapter_sites().origin(part.linear);
      const bool is_head = is_tied() && is_embedding(origin.module);
      parted_ = parted_ || is_head;
      Delta delta{&module, scale, {}};
      for (std::int64_t i = 0; i < part.count; ++i) {
        const std::int64_t column = part.first_column + i;
        const auto row = static_cast<std::size_t>(
            origin.rows.empty() ? column : origin.rows[static_cast<std::size_t>(column)]);
        if (delta.source.size() <= row) delta.source.resize(row + 1, -1);
        delta.source[row] = static_cast<std::int32_t>(
            part.rows.empty() ? part.first_row + i : part.rows[static_cast<std::size_t>(i)]);
      }
      deltas_[is_head ? head_name() : origin.module].push_back(std::move(delta));
    }
  }

  bool is_embedding(const std::string& module) const {
    const AdapterSite* site = loader_.adapter_sites().find(module);
    return site != nullptr && site->is_embedding;
  }
  // Whether the head has no tensor of its own.
  bool is_tied() const {
    return std::none_of(arch_.head.begin(), arch_.head.end(),
                        [&](const std::string& name) { return has_weight_matrix(source_, name); });
  }

  std::vector<TensorPlan> plan() {
    std::map<std::string, const LinearOrigin*> origins;
    const AdapterSites& sites = loader_.adapter_sites();
    for (std::int32_t i = 0; i < sites.linears(); ++i) {
      origins.try_emplace(sites.origin(i).module, &sites.origin(i));
    }
    std::vector<TensorPlan> plans;
    const auto add = [&](const std::string& name, DType dtype, const Shape& shape, Output output) {
      if (!outputs_.try_emplace(name, std::move(output)).second) return;
      plans.push_back(plan_tensor(name, dtype, shape));
    };
    std::string embedding;
    for (const std::string& original : args_.base.source->names()) {
      const std::string name = names_.known_as(original).name;
      const std::size_t dot = name.rfind('.');
      const std::string module = name.substr(0, dot);
      const std::string_view kind =
          dot == std::string::npos ? std::string_view() : std::string_view(name).substr(dot + 1);
      const auto origin = origins.find(module);
      if (origin != origins.end() && is_code(kind)) {
        if (kind != "q_weight" && kind != "qweight") continue;
        const bool turned = origin->second->transposed;
        const std::int64_t out = origin->second->out;
        const std::int64_t in = in_of(module);
        add(original.substr(0, original.rfind('.')) + ".weight", DType::kF16,
            turned ? Shape{in, out} : Shape{out, in}, {module, module, true, turned});
        continue;
      }
      const TensorInfo& info = *args_.base.source->find(original);
      const bool weight = kind == "weight";
      const bool turned = weight && origin != origins.end() && origin->second->transposed;
      add(original, info.dtype, info.shape, {original, weight ? module : "", false, turned});
      if (weight && is_embedding(module)) embedding = original;
    }
    if (parted_ && !embedding.empty()) {
      const TensorInfo& info = *args_.base.source->find(embedding);
      add(head_name() + ".weight", info.dtype, info.shape, {embedding, head_name(), false, false});
    }
    return plans;
  }

  static bool is_code(std::string_view kind) {
    constexpr std::string_view kKinds[] = {"q_weight",  "q_scale", "q_scale_max", "q_groups",
                                           "q_invperm", "q_perm",  "qweight",     "qzeros",
                                           "scales",    "g_idx"};
    return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
  }

  WeightMatrix matrix_of(const std::string& module) const {
    LoadHints hints;
    hints.gptq = args_.base.gptq ? &*args_.base.gptq : nullptr;
    return load_weight_matrix(source_, module, hints);
  }
  std::int64_t in_of(const std::string& module) const { return in_features(matrix_of(module)); }

  void write_tensor(const TensorPlan& plan, const Output& output, const Deltas* deltas,
                    const Sink& sink) const {
    if (output.quantized) {
      write_quantized(plan, output, deltas, sink);
      return;
    }
    const HostArray array = args_.base.source->read(output.from);
    if (deltas == nullptr) {
      sink({array.view.as<const std::byte>(), plan.bytes()});
    } else if (output.transposed) {
      write_transposed(array.view, *deltas, sink);
    } else {
      write_rows(array.view, *deltas, sink);
    }
    args_.base.source->done_with(output.from);
  }

  // Calls body(row) for the rows [0, count) on all threads.
  template <class F>
  void for_rows(std::int64_t count, F&& body) const {
    const auto run = [&](long begin, long end) {
      for (long row = begin; row < end; ++row) body(static_cast<std::int64_t>(row));
    };
    if (ThreadPool* threads = backend_.threads()) {
      threads->parallel_for(count, 1, run);
    } else {
      run(0, count);
    }
  }

  static void add_deltas(const Deltas* deltas, std::int64_t row, std::span<float> sum) {
    if (deltas == nullptr) return;
    float left = 1;  // share of the model's own row
    for (const Delta& delta : *deltas) left -= replaces(delta, row) ? delta.scale : 0;
    if (left != 1) {
      for (float& value : sum) value *= left;
    }
    for (const Delta& delta : *deltas) add_delta(delta, row, sum.data());
  }

  // Rounds a merged weight to the stored type. check_range_held() reports weights that do not fit.
  template <class T>
  T rounded(float value) const {
    const T stored = static_cast<T>(value);
    if (!std::isfinite(static_cast<float>(stored))) beyond_.store(true, std::memory_order_relaxed);
    return stored;
  }
  void check_range_held(DType dtype) const {
    if (!beyond_) return;
    fail(ErrorCode::kInvalidArgument,
         "a merged weight is beyond what {} holds; the adapter's weight or its lora_alpha is too "
         "large",
         name_of(dtype));
  }

  // Writes a tensor [out, in], one piece at a time.
  void write_rows(const TensorView& view, const Deltas& deltas, const Sink& sink) const {
    const std::int64_t width = view.columns();
    visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
      for (std::int64_t first = 0; first < view.rows(); first += kPieceRows) {
        const std::int64_t count = std::min(kPieceRows, view.rows() - first);
        std::vector<T> piece(static_cast<std::size_t>(count * width));
        for_rows(count, [&](std::int64_t i) {
          const T* from = view.row<const T>(first + i);
          std::vector<float> row(static_cast<std::size_t>(width));
          std::transform(from, from + width, row.begin(),
                         [](T v) { return static_cast<float>(v); });
          add_deltas(&deltas, first + i, row);
          std::transform(row.begin(), row.end(), piece.begin() + i * width,
                         [&](float v) { return rounded<T>(v); });
        });
        check_range_held(view.dtype);
        sink(std::as_bytes(std::span(piece)));
      }
    });
  }

  // Writes a tensor [in, out]. Sums are computed by output, that is by column, and transposed.
  void write_transposed(const TensorView& view, const Deltas& deltas, const Sink& sink) const {
    const std::int64_t in = view.rows();
    const std::int64_t out = view.columns();
    visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
      std::vector<T> all(static_cast<std::size_t>(in * out));
      for_rows(out, [&](std::int64_t c) {
        std::vector<float> row(static_cast<std::size_t>(in));
        for (std::int64_t i = 0; i < in; ++i) {
          row[static_cast<std::size_t>(i)] = static_cast<float>(view.row<const T>(i)[c]);
        }
        add_deltas(&deltas, c, row);
        for (std::int64_t i = 0; i < in; ++i) {
          all[static_cast<std::size_t>(i * out + c)] = rounded<T>(row[static_cast<std::size_t>(i)]);
        }
      });
      check_range_held(view.dtype);
      sink(std::as_bytes(std::span(all)));
    });
  }

  void write_quantized(const TensorPlan& plan, const Output& output, const Deltas* deltas,
                       const Sink& sink) const {
    const WeightMatrix matrix = matrix_of(output.module);
    const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);  // [in, stored]
    const std::int64_t in = in_features(matrix);
    const std::int64_t stored = out_features(matrix);
    const std::int64_t out = plan.shape[output.transposed ? 1 : 0];
    std::vector<std::uint16_t> all(static_cast<std::size_t>(in * out));
    for_rows(out, [&](std::int64_t c) {
      std::vector<float> row(static_cast<std::size_t>(in));
      for (std::int64_t i = 0; i < in; ++i) {
        row[static_cast<std::size_t>(i)] =
            half_to_float(halves[static_cast<std::size_t>(i * stored + c)]);
      }
      add_deltas(deltas, c, row);
      for (std::int64_t i = 0; i < in; ++i) {
        all[static_cast<std::size_t>(output.transposed ? i * out + c : c * in + i)] =
            std::bit_cast<std::uint16_t>(rounded<Half>(row[static_cast<std::size_t>(i)]));
      }
    });
    check_range_held(DType::kF16);
    sink(std::as_bytes(std::span(all)));
  }

  void write_config() const {
    Json config = args_.base.config;
    if (config.erase("quantization_config") > 0 || any_quantized()) {
      config.erase("torch_dtype");
      config["dtype"] = "float16";
    }
    if (parted_) {
      config["tie_word_embeddings"] = false;
      const auto text = config.find("text_config");
      if (text != config.end() && text->is_object()) (*text)["tie_word_embeddings"] = false;
    }
    write_file_atomically(args_.folder / "config.json", json_text(config, 2) + "\n");
  }
  bool any_quantized() const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [](const auto& output) { return output.second.quantized; });
  }

  const LoraMergeArgs& args_;
  Backend& backend_;
  ModelLoader loader_;
  const ArchSpec& arch_;
  CheckpointNames names_;
  RenamedSource source_;
  std::vector<PeftAdapter> adapters_;
  std::map<std::string, Deltas> deltas_;      // by module
  std::map<std::string, Output> outputs_;     // by tensor of the result
  bool parted_ = false;                       // the head gets a tensor of its own
  mutable std::atomic<bool> beyond_ = false;  // a weight that its type cannot hold
};

}  // namespace

LoraMergeResult merge_lora(Backend& backend, const LoraMergeArgs& args) {
  // Deltas apply to stored matrices, whose channels are in the order of the files.
  BL_CHECK(!backend.reorders_hidden());
  return AdapterMerge(backend, args).write();
}

}  // namespace bl
