#include "served_models.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "backend/registry.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/host_memory.h"
#include "template_flags.h"
#include "usage_error.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

std::string folder_name(fs::path path) {
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = fs::absolute(path).filename().string();
  return path.extension() == ".gguf" ? path.stem().string() : name;
}

void check_folder(const char* flag, const std::string& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  fail(ErrorCode::kNotFound, "{}: {} is no folder", flag, folder);
}

// The memory for models where the options leave it open.
server::ModelMemory memory_now(const std::string& backend_name) {
  const std::unique_ptr<Backend> backend = open_backend(backend_name, {.threads = 1});
  if (backend->reads_host_memory()) return {available_host_memory(), 0};
  return {backend->free_memory(), available_host_memory()};
}

}  // namespace

void ServedModels::check() const {
  if (parallel < 1 || parallel > 1024) fail_usage("--parallel: {} is not in 1 … 1024", parallel);
  random.check();
  if (random.wanted() && (!model.model.empty() || tokenizer.empty())) {
    fail_usage("serve: give either -m DIR, or --random SHAPE with --tokenizer DIR");
  }
  if (!random.wanted() && !tokenizer.empty()) fail_usage("--tokenizer goes with --random SHAPE");
  if (model.model.empty() && folder.empty() && !random.wanted()) {
    fail_usage(
        "-m DIR is missing: the model folder or .gguf file; or --models DIR, a folder of them");
  }
  if (idle_minutes < 0 || idle_minutes > 1'000'000) {
    fail_usage("--idle-unload: {} is not in 0 … 1000000", idle_minutes);
  }
  if (!pooling.empty() && !pooling_of(pooling)) {
    fail_usage("--pooling: '{}' is not mean, cls or last", pooling);
  }
  if (max_tokens && *max_tokens < 1) fail_usage("--max-tokens: {} should be above 0", *max_tokens);
  if (temperature && !(*temperature >= 0 && *temperature <= 100)) {
    fail_usage("--temperature: {} is not in 0 … 100", *temperature);
  }
  if (reasoning != "on" && reasoning != "off" && reasoning != "auto") {
    fail_usage("--reasoning: '{}' is not on, off or auto", reasoning);
  }
  if (reasoning_format != "deepseek" && reasoning_format != "none") {
    fail_usage("--reasoning-format: '{}' is not deepseek or none", reasoning_format);
  }
  parse_template_variables(template_variables);
  check_folder("--models", folder);
  check_folder("--loras", adapters);
  check_folder("--templates", templates);
  check_folder("--presets", presets);
  constraint.spec();
  speculation.check();
  preset.load();
  model.session_options(false);
}

bool ServedModels::is_first_model(const std::filesystem::path& path) const {
  const std::string& first = random.wanted() ? random.random : model.model;
  return !first.empty() && path == first;
}

std::shared_ptr<const OpenedModel> ServedModels::random_model() const {
  constexpr std::uintmax_t kMostBytes = 64 << 20;
  auto opened = std::make_shared<OpenedModel>(*random.open(model.archs).opened);
  const std::filesystem::path from = tokenizer;
  opened->tokenizer_json = read_file(from / "tokenizer.json", kMostBytes);
  const std::filesystem::path config = from / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    opened->tokenizer_config_json = read_file(config, kMostBytes);
  }
  return opened;
}

server::FolderPaths ServedModels::folders() const {
  return {.adapters = adapters, .templates = templates, .presets = presets};
}

SamplingParams ServedModels::sampling(SamplingParams of_model) const {
  if (max_tokens) of_model.max_tokens = *max_tokens;
  if (temperature) of_model.temperature = *temperature;
  if (seed) of_model.seed = *seed;
  return of_model;
}

ModelOptions ServedModels::options_for(const server::LoadOrder& order) const {
  ModelOptions options = model;
  options.model = order.path.string();
  if (order.settings.context > 0) options.context = order.settings.context;
  if (!order.settings.cache.empty()) options.cache = order.settings.cache;
  if (order.settings.rope_scale > 0) options.rope_scale = order.settings.rope_scale;
  if (order.settings.rope_alpha > 0) options.rope_alpha = order.settings.rope_alpha;
  return options;
}

SessionOptions ServedModels::session_for(const server::LoadOrder& order,
                                         const ModelOptions& options) const {
  SessionOptions session = options.session_options();
  if (random.wanted() && is_first_model(order.path)) session.opened = random_model();
  session.sequences = order.settings.sequences > 0 ? order.settings.sequences : parallel;
  session.on_progress = order.on_progress;
  if (order.memory.device > 0 && (session.memory == 0 || order.memory.device < session.memory)) {
    session.memory = order.memory.device;
  }
  const std::string own =
      order.settings.chat_template.empty() ? chat_template : order.settings.chat_template.string();
  if (!own.empty()) {
    session.chat_template = std::make_shared<const ChatTemplate>(read_file(own, 16 << 20), own);
  }
  return session;
}

std::shared_ptr<server::ServedModel> ServedModels::load(const server::LoadOrder& order,
                                                        bool is_first) const {
  const ModelOptions options = options_for(order);
  SessionOptions session = session_for(order, options);
  SpeculationFlags draft = is_first ? speculation : SpeculationFlags{};
  if (!order.settings.draft.empty()) draft.draft = order.settings.draft.string();
  if (is_first) lora.plan(session);
  EngineOptions engine_options;
  engine_options.speculation = draft.load(options, session);
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(load_session(session), std::move(engine_options));
  args.names = order.names;
  args.file =
      (order.path.has_filename() ? order.path : order.path.parent_path()).filename().string();
  args.otherwise.constraint = constraint.spec();
  args.otherwise.preset = preset.load();
  args.otherwise.special_tokens_in_messages = special_tokens_in_messages;
  args.otherwise.prefill_assistant = prefill_assistant;
  args.otherwise.verbose = verbose_answers;
  if (reasoning != "auto") args.otherwise.reasoning = reasoning == "on";
  args.otherwise.separate_reasoning = reasoning_format == "deepseek";
  args.otherwise.template_variables =
      std::make_shared<const OrderedJson>(parse_template_variables(template_variables));
  args.generates = !embeddings;
  args.reranks = reranking;
  if (is_first) {
    const std::vector<LoraArgument> folders = lora.arguments();
    for (const AdapterChoice& choice : lora.load(*args.engine)) {
      args.adapters.push_back({choice.name, folders[args.adapters.size()].folder, choice.weight});
    }
  }
  args.has_seed = seed.has_value();
  args.sampling = sampling(args.engine->session().defaults().request);
  args.pooling = pooling.empty() ? read_pooling(order.path) : pooling_of(pooling);
  args.engine->warm_up();
  return std::make_shared<server::ServedModel>(std::move(args));
}

server::ModelOptions ServedModels::registry() const {
  server::ModelOptions options;
  options.folder = folder;
  options.idle_time = std::chrono::minutes(idle_minutes);
  if (!folder.empty()) {
    options.budget =
        memory.bytes > 0 ? server::ModelMemory{memory.bytes, 0} : memory_now(model.backend);
  }
  options.functions.plan = [this, budget = options.budget](server::LoadOrder order) {
    order.memory = budget;
    const SessionOptions session = session_for(order, options_for(order));
    const MemoryPlan plan = ModelSession::plan_of(session);
    return server::ModelMemory{plan.needed(), plan.on_host + session.kv_host};
  };
  options.functions.load = [this](const server::LoadOrder& order) {
    return load(order, is_first_model(order.path));
  };
  return options;
}

void ServedModels::load_first(server::ServerState& state) const {
  if (model.model.empty() && !random.wanted()) return;
  server::LoadOrder order;
  order.path = random.wanted() ? random.random : model.model;
  order.names = aliases;
  if (order.names.empty() || order.names.front() == "*") {
    order.names.insert(order.names.begin(), folder_name(order.path));
  }
  state.registry().add_pinned(load(order, true), order.path);
}

}  // namespace bl
