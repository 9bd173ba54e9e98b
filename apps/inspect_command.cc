#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "backend/registry.h"
#include "base/json.h"
#include "base/terminal.h"
#include "command.h"
#include "engine/host_memory.h"
#include "engine/open_model.h"
#include "engine/session_plan.h"
#include "format/load_weight_matrix.h"
#include "model/model_loader.h"
#include "model_flags.h"
#include "random_model_flags.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

struct InspectOptions {
  std::string model;
  std::string backend = "auto";
  std::int64_t context = 0;
  std::string cache;
  std::int64_t batch = 1;
  ByteSize memory;
  bool embed_host = false;
  RandomModelFlags random;
  double rope_scale = 0;
  double rope_alpha = 0;
  std::string layer_map;
  std::vector<std::string> overrides;
  std::string archs;
  std::string draft;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"model", "DIR|FILE.gguf", "model folder or .gguf file"});
    v(archs, {"--archs", "DIR", "architecture files that replace the built-in ones", "built in"});
    v.group("Plan");
    v(backend, {"--backend", "NAME", "auto, cpu, ref or cuda[:N], which needs no card here"});
    v(context, {"--ctx", "N", "tokens of a sequence", "the model's"});
    v(cache, {"--cache", "TYPE", cache_help(), "fp16; ref: fp32"});
    v(batch, {"--batch", "N", "sequences at once"});
    v(memory, {"--vram", "SIZE", "memory to fit into, such as 24GiB", "what is free"});
    v(embed_host, {"--embed-host", "", "keep the embedding in host memory (no effect on a CPU)"});
    v(rope_scale, {"--rope-scale", "X", "divide positions by X", "the model's"});
    v(rope_alpha, {"--rope-alpha", "X", "stretch the rotary base (NTK)", "the model's"});
    v(overrides, {"--override", "PATTERN=DIR", kOverrideHelp});
    v(layer_map, {"--layer-map", "RUNS", kLayerMapHelp, "every layer once"});
    v(draft,
      {"--draft", "DIR|mtp", "layers that read its hidden states and guess (DFlash, MTP)", "none"});
    random.visit(v);
    v.group("Output");
    v(json, {"--json", "", "print JSON"});
  }
};

// Weights of one transformer block, or of what is outside them.
struct LayerReport {
  std::string name;
  std::int64_t weights = 0;
  double bits = 0;
  std::vector<std::string> formats;
  double bits_per_weight() const { return weights > 0 ? bits / static_cast<double>(weights) : 0.0; }
};

struct Inspection {
  Json tensors = Json::array();
  std::vector<LayerReport> layers;
  LayerReport linears;  // of the blocks: what the bits of a quantized file are usually counted over
  LayerReport all;      // and the embedding, the head, …
  std::uint64_t stored_bytes = 0;
};

// "model.layers.3.mlp.down_proj" → "model.layers.3"; what has no number stands for itself.
std::string layer_of(const std::string& key) {
  std::size_t begin = 0;
  while (begin < key.size()) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string_view part = std::string_view(key).substr(begin, end - begin);
    if (!part.empty() &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return key.substr(0, end);
    }
    begin = end + 1;
  }
  return key;
}

std::uint64_t bytes_of(const TensorInfo& info) {
  return static_cast<std::uint64_t>(info.shape.elements()) * size_of(info.dtype);
}

struct MatrixReport {
  std::string key;
  std::int64_t weights = 0;
  std::uint64_t bytes = 0;
  std::string format;
};

void add_matrix(const MatrixReport& matrix, LayerReport& report) {
  report.weights += matrix.weights;
  report.bits += 8.0 * static_cast<double>(matrix.bytes);
  std::vector<std::string>& formats = report.formats;
  if (std::find(formats.begin(), formats.end(), matrix.format) == formats.end()) {
    formats.push_back(matrix.format);
  }
}

// The matrix that a tensor is, or is the main part of; nothing for scales, norms and biases.
std::optional<MatrixReport> matrix_of(const ModelFiles& files, const std::string& name,
                                      const TensorInfo& info) {
  const auto dot = name.rfind('.');
  const std::string key = name.substr(0, dot);
  const std::string part = dot == name.npos ? std::string() : name.substr(dot + 1);
  if (part == "q_weight" || part == "qweight") {
    LoadHints hints;
    hints.gptq = files.gptq ? &*files.gptq : nullptr;
    const WeightMatrix matrix = load_weight_matrix(*files.source, key, hints);
    return MatrixReport{key, in_features(matrix) * out_features(matrix), stored_bytes(matrix),
                        std::string(format_name(matrix))};
  }
  const bool is_float =
      info.dtype == DType::kF16 || info.dtype == DType::kBF16 || info.dtype == DType::kF32;
  if (info.shape.rank() < 2 || !is_float || part == "scales") return std::nullopt;
  return MatrixReport{key, info.shape.elements(), bytes_of(info), std::string(name_of(info.dtype))};
}

Inspection inspect_weights(const ModelFiles& files) {
  Inspection result;
  std::unordered_map<std::string, std::size_t> index;  // into result.layers
  for (const std::string& name : files.source->names()) {
    const TensorInfo& info = *files.source->find(name);
    Json shape = Json::array();
    for (int i = 0; i < info.shape.rank(); ++i) shape.push_back(info.shape[i]);
    result.stored_bytes += bytes_of(info);
    result.tensors.push_back({{"name", name},
                              {"dtype", name_of(info.dtype)},
                              {"shape", std::move(shape)},
                              {"bytes", bytes_of(info)}});
    const auto matrix = matrix_of(files, name, info);
    if (!matrix) continue;
    const std::string layer = layer_of(matrix->key);
    const auto [at, is_new] = index.emplace(layer, result.layers.size());
    if (is_new) result.layers.push_back(LayerReport{layer, 0, 0, {}});
    add_matrix(*matrix, result.layers[at->second]);
    add_matrix(*matrix, result.all);
    if (layer != matrix->key) add_matrix(*matrix, result.linears);
  }
  // Names sort as text; people count.
  std::stable_sort(
      result.layers.begin(), result.layers.end(), [](const LayerReport& a, const LayerReport& b) {
        return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
      });
  return result;
}

// Bytes to fit into.
std::uint64_t memory_for(const InspectOptions& options, const Planner& planner) {
  if (options.memory.bytes > 0) return options.memory.bytes;
  if (planner.is_plan) fail_usage("--vram SIZE: there is no card here, so say what to fit into");
  const Backend& backend = *planner.backend;
  return backend.reads_host_memory() ? available_host_memory() : backend.free_memory();
}

struct PlanReport {
  SessionPlan plan;
  std::int64_t max_context = 0;
  std::string instead;  // what would fit
  LoadTotals weights;
  bool tied = false;
  bool on_device = false;
};

PlanReport make_plan(const InspectOptions& options, const ModelLoader& loader,
                     const Planner& planner) {
  const Backend& backend = *planner.backend;
  SessionOptions session;
  session.sequences = options.batch;
  // Without --ctx the model's own, whether it fits or not.
  session.context = loader.spec().context;
  session.embed_host = options.embed_host;
  session.cache = cache_types_of(options.cache);
  const PlanInput input{session, loader, backend, memory_for(options, planner)};
  PlanReport report;
  report.plan = plan_session(input);
  report.max_context = longest_fitting(input, report.plan.cache);
  if (!report.plan.fits()) report.instead = what_would_fit(input, report.plan);
  report.weights = loader.weights();
  report.tied = loader.spec().tied;
  report.on_device = !backend.reads_host_memory();
  return report;
}

Json to_json(const ModelSpec& spec, const Inspection& weights, const PlanReport& plan) {
  const MemoryPlan& memory = plan.plan.memory;
  Json layers = Json::array();
  for (const LayerReport& layer : weights.layers) {
    layers.push_back({{"name", layer.name},
                      {"weights", layer.weights},
                      {"bits_per_weight", layer.bits_per_weight()},
                      {"formats", layer.formats}});
  }
  return {{"architecture", spec.architecture},
          {"hidden", spec.hidden},
          {"layers", spec.layers},
          {"layers_run", spec.order.size()},
          {"vocab", spec.vocab},
          {"max_positions", spec.max_positions},
          {"parameters", weights.all.weights},
          {"bits_per_weight", weights.all.bits_per_weight()},
          {"bits_per_weight_of_blocks", weights.linears.bits_per_weight()},
          {"formats", weights.all.formats},
          {"stored_bytes", weights.stored_bytes},
          {"weights_by_layer", std::move(layers)},
          {"tensors", weights.tensors},
          {"plan",
           {{"weights", memory.weights},
            {"cache", memory.cache},
            {"work", memory.work},
            {"backend", memory.backend},
            {"total", memory.total()},
            {"driver", memory.driver},
            {"host", memory.on_host},
            {"quantized_stored", plan.weights.quantized_stored},
            {"quantized_packed", plan.weights.quantized_packed},
            {"step_tokens", plan.plan.step_tokens},
            {"available", plan.plan.available},
            {"fits", plan.plan.fits()},
            {"ctx", plan.plan.context},
            {"cache_type", name_of(plan.plan.cache)},
            {"max_ctx", plan.max_context},
            {"instead", plan.instead}}}};
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string plan_table(const PlanReport& report) {
  const auto bytes = [](std::uint64_t value) { return human_bytes(static_cast<double>(value)); };
  const SessionPlan& plan = report.plan;
  const MemoryPlan& memory = plan.memory;
  std::string text = fmt::format("\nmemory for {} tokens, cache {}, steps of {}:\n", plan.context,
                                 name_of(plan.cache), plan.step_tokens);
  const auto line = [&](const char* what, std::uint64_t size, const std::string& remark) {
    text +=
        fmt::format("  {:<10} {:>12}{}{}\n", what, bytes(size), remark.empty() ? "" : "  ", remark);
  };
  std::string packed;
  if (report.weights.quantized_stored > 0 && report.on_device) {
    packed = fmt::format("quantized matrices {:.4f} of their bytes in the files",
                         static_cast<double>(report.weights.quantized_packed) /
                             static_cast<double>(report.weights.quantized_stored));
  }
  line("weights", memory.weights, packed);
  line("cache", memory.cache, "");
  line("work", memory.work, "");
  if (report.on_device) line("backend", memory.backend, "work space of libraries, constants");
  line(
      "total", memory.total(),
      fmt::format("{} {}", plan.fits() ? "fits into" : "does not fit into", bytes(plan.available)));
  if (report.on_device) {
    line("driver", memory.driver,
         "beside the total: its context, kernels, recorded steps; allowed for");
  }
  if (memory.on_host > 0) {
    line(
        "host", memory.on_host,
        report.tied ? "the embedding; the head, its equal, is among the weights" : "the embedding");
  }
  text += fmt::format("  longest context that fits: {}\n", report.max_context);
  if (!report.instead.empty()) text += fmt::format("  what fits: {}\n", report.instead);
  return text;
}

std::string layers_of(const ModelSpec& spec) {
  std::string text = fmt::format("{} layers", spec.layers);
  if (!spec.runs_each_once()) text += fmt::format(" ({} run)", spec.order.size());
  return text;
}

std::string to_table(const ModelSpec& spec, const Inspection& weights, const PlanReport& plan) {
  std::string text = fmt::format(
      "architecture     {}\nsize             {}, hidden {}, vocabulary {}, {} positions\n"
      "weights          {:.1f} M in {} tensors, {} ({})\n"
      "bits a weight    {:.3f} in the linears of the blocks, {:.3f} with embedding and head\n\n",
      spec.architecture, layers_of(spec), spec.hidden, spec.vocab, spec.max_positions,
      static_cast<double>(weights.all.weights) / 1e6, weights.tensors.size(),
      human_bytes(static_cast<double>(weights.stored_bytes)), join(weights.all.formats),
      weights.linears.bits_per_weight(), weights.all.bits_per_weight());
  text += fmt::format("{:<28} {:>12} {:>12}  {}\n", "layer", "weights", "bits each", "formats");
  for (const LayerReport& layer : weights.layers) {
    text += fmt::format("{:<28} {:>12} {:>12.3f}  {}\n", layer.name, layer.weights,
                        layer.bits_per_weight(), join(layer.formats));
  }
  return text + plan_table(plan);
}

void check(const InspectOptions& options) {
  options.random.check();
  if (options.model.empty() && !options.random.wanted()) {
    fail_usage("inspect: DIR or FILE.gguf is missing");
  }
  if (!options.model.empty() && options.random.wanted()) {
    fail_usage("inspect: give either DIR or --random SHAPE");
  }
  if (options.random.wanted() && !options.overrides.empty()) {
    fail_usage("inspect: --override takes modules of a model on disk, not of --random SHAPE");
  }
  if (options.context < 0) fail_usage("--ctx: {} should be 1 or more", options.context);
  if (options.batch < 1 || options.batch > 4096) {
    fail_usage("--batch: {} is not in 1 … 4096", options.batch);
  }
  (void)cache_types_of(options.cache);
  check_backend_flag("--backend", options.backend);
}

// A draft that is a model by itself has a plan of its own.
ModelFiles open_draft(const InspectOptions& options) {
  const OpenedModel draft = open_model(options.draft, options.archs);
  if (!is_draft_layers(draft, options.archs)) {
    fail_usage("--draft: {} is a model by itself, which `bitloom inspect {}` plans for",
               options.draft, options.draft);
  }
  return draft.files;
}

void inspect(InspectOptions& options) {
  check(options);
  const OpenedModel opened =
      options.random.wanted()
          ? *options.random.open_hollow(options.archs).opened
          : open_model(options.model, options.archs, overrides_of(options.overrides));
  const Planner planner = open_planner(options.backend, {});
  LoadOptions load;
  load.spec = {options.rope_scale, options.rope_alpha, options.context, options.layer_map};
  load.archs = options.archs;
  load.embed_host = options.embed_host;
  load.mtp = options.draft == "mtp";
  if (!options.draft.empty() && !load.mtp) load.draft = open_draft(options);
  const ModelLoader loader(*planner.backend, opened.files, load);
  const Inspection weights = inspect_weights(opened.files);
  const PlanReport plan = make_plan(options, loader, planner);
  if (options.json) {
    write_json(to_json(loader.spec(), weights, plan));
  } else {
    write_result(to_table(loader.spec(), weights, plan));
  }
}

}  // namespace

Command inspect_command() {
  return make_command<InspectOptions>(
      {"inspect",
       "DIR|FILE.gguf [--ctx N] [--cache TYPE] [--batch N] [--vram SIZE]",
       "What is in a model, and the memory it needs, before anything is loaded",
       {{"Architecture, bits per weight, and whether the model fits into memory",
         "bitloom inspect DIR"},
        {"Would 8 sequences of 16384 tokens fit into 24 GiB?",
         "bitloom inspect DIR --ctx 16384 --batch 8 --cache q8 --vram 24GiB"}}},
      inspect);
}

}  // namespace bl
