#include "engine/model_session.h"

#include <algorithm>
#include <future>
#include <utility>

#include "backend/registry.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/terminal.h"
#include "engine/host_memory.h"
#include "engine/open_model.h"
#include "engine/session_plan.h"
#include "engine/trained_length.h"
#include "model/model_loader.h"

namespace bl {
namespace {

// The host memory that the host tier of the cache leaves.
std::uint64_t host_memory_beside(std::size_t kv_host) {
  const std::uint64_t available = available_host_memory();
  if (kv_host > available) {
    fail(ErrorCode::kOutOfMemory, "--kv-host asks for {} of host memory, and {} is free",
         human_bytes(static_cast<double>(kv_host)), human_bytes(static_cast<double>(available)));
  }
  return available - kv_host;
}

// `options` must outlive the loading.
LoadOptions load_options_of(const SessionOptions& options) {
  LoadOptions load;
  load.spec = {options.rope_scale, options.rope_alpha, options.context, options.layer_map};
  load.archs = options.archs;
  load.embed_host = options.embed_host;
  if (options.draft_layers) load.draft = options.draft_layers->files;
  load.mtp = options.mtp;
  load.progress = [tell = &options.on_progress](std::size_t done, std::size_t total) {
    if (*tell) (*tell)(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
  };
  return load;
}

void warn_of_length(const ModelSpec& spec, const SessionOptions& options, std::int64_t context) {
  const std::string advice = rope_advice(spec, load_options_of(options).spec, context);
  if (!advice.empty()) log_warning("--ctx {}: {}", context, advice);
}

std::int64_t count_parameters(Model& model) {
  std::int64_t count = model.embedding_rows() * model.spec().hidden;
  model.visit([&](const std::string& name, const Linear& linear) {
    const bool is_counted = name == "head" && model.spec().tied;
    if (!linear.empty() && !is_counted) count += linear.in() * linear.out();
  });
  return count;
}

std::unique_ptr<ModelText> load_text(const OpenedModel& opened,
                                     std::shared_ptr<const ChatTemplate> chat_template) {
  return std::make_unique<ModelText>(load_tokenizer(opened), opened.path.string(),
                                     std::move(chat_template));
}

OpenedModel opened_of(const SessionOptions& options) {
  if (options.opened) return *options.opened;
  return open_model(options.model, options.archs, options.overrides);
}

}  // namespace

MemoryPlan ModelSession::plan_of(const SessionOptions& options) {
  const OpenedModel opened = opened_of(options);
  const std::unique_ptr<Backend> backend = open_backend(options.backend, {.threads = 1});
  const ModelLoader loader(*backend, opened.files, load_options_of(options));
  std::uint64_t available = options.memory;
  if (available == 0) {
    available = backend->reads_host_memory() ? available_host_memory() : backend->free_memory();
  }
  const PlanInput input{options, loader, *backend, available};
  const SessionPlan plan = plan_session(input);
  check_fits(input, plan, opened.path.string());
  return plan.memory;
}

std::unique_ptr<ModelSession> ModelSession::load(const SessionOptions& options) {
  if (options.opened && !options.overrides.empty()) {
    fail(ErrorCode::kInvalidArgument, "--override: a random model has no modules of other models");
  }
  std::unique_ptr<ModelSession> session(new ModelSession);
  const OpenedModel opened = opened_of(options);
  if (!opened.note.empty()) log_info("{}", opened.note);
  session->defaults_ = read_generation_defaults(opened.generation_config, opened.files.config,
                                                opened.generation_config_file);
  session->backend_ = open_backend(options.backend, {.threads = options.threads});
  Backend& backend = *session->backend_;
  ModelLoader loader(backend, opened.files, load_options_of(options));
  const std::uint64_t host_memory = host_memory_beside(options.kv_host);
  std::uint64_t available = backend.reads_host_memory() ? host_memory : backend.free_memory();
  if (options.memory > 0) available = std::min(available, options.memory);
  const PlanInput input{options, loader, backend, available};
  const SessionPlan plan = plan_session(input);
  check_fits(input, plan, opened.path.string());
  warn_of_length(loader.spec(), options, plan.context);
  session->plan_ = plan.memory;
  session->kv_host_ = options.kv_host;
  session->cache_type_ = plan.cache;
  session->context_ = plan.context;
  session->step_tokens_ = plan.step_tokens;
  session->logit_rows_ = plan.logit_rows;
  session->sequences_ = options.sequences;
  session->deterministic_ = options.deterministic;
  const ModelSpec& spec = loader.spec();
  const auto order = spec.runs_each_once() ? std::span<const std::int32_t>() : spec.order;
  session->identity_.emplace(opened, order, options.mtp ? &opened : options.draft_layers.get(),
                             spec.arch->text);

  // Reading the tokenizer keeps one thread busy, and packing weights waits for memory half of the
  // time, so both run at once.
  std::future<std::unique_ptr<ModelText>> text;
  if (options.with_text) {
    text = std::async(std::launch::async, load_text, std::cref(opened), options.chat_template);
  }
  session->model_ = loader.load();
  session->parameters_ = count_parameters(*session->model_);
  session->cache_ =
      std::make_unique<KvCache>(backend, session->model_->kv_layouts(plan.cache), plan.pages);
  session->scratch_ = Arena(backend.allocate(plan.memory.work));
  session->take_carried();
  session->allocate_fetched();
  if (text.valid()) session->text_ = text.get();
  session->collect_end_tokens();
  return session;
}

void ModelSession::take_carried() {
  if (!draft_chains()) return;
  carried_ = scratch_.take_f32({carried_places().rows(), model_->spec().hidden});
  scratch_begin_ = scratch_.mark();
  const Tensor zeros = make_host_tensor(DType::kF32, carried_.shape);
  std::fill_n(zeros.view().as<float>(), zeros.view().shape.elements(), 0.0f);
  backend_->upload(carried_, zeros.view());
}

void ModelSession::allocate_fetched() {
  const auto words = static_cast<std::size_t>(2 * logit_rows_);
  const auto logits =
      static_cast<std::size_t>(std::min(kFetchedRows, logit_rows_) * std::int64_t{vocab()});
  const std::size_t bytes = fetched_.size() * (words + logits) * sizeof(std::int32_t);
  fetched_memory_ = backend_->allocate_transfer(bytes);
  if (fetched_memory_.bytes() < bytes) {
    fail(ErrorCode::kOutOfMemory, "the system has no {} bytes of page-locked memory left", bytes);
  }
  auto* memory = static_cast<std::int32_t*>(fetched_memory_.data());
  for (auto& step_buffer : fetched_) {
    step_buffer = {memory, words};
    memory += words;
  }
  auto* rows = reinterpret_cast<float*>(memory);
  for (auto& step_buffer : fetched_logits_) {
    step_buffer = {rows, logits};
    rows += logits;
  }
}

void ModelSession::collect_end_tokens() {
  std::vector<std::int32_t>& ids = defaults_.end_tokens;
  const std::vector<std::int32_t>& of_config = model_->spec().eos_ids;
  ids.insert(ids.end(), of_config.begin(), of_config.end());
  if (text_) {
    if (const auto id = text_->tokenizer().eos_id()) ids.push_back(*id);
    if (const auto id = text_->end_of_turn()) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

const ModelText& ModelSession::text() const {
  BL_CHECK(text_ != nullptr);
  return *text_;
}

std::int64_t ModelSession::choosable() const {
  return text_ ? std::min<std::int64_t>(vocab(), text_->tokenizer().vocab_size()) : vocab();
}

bool ModelSession::is_end_token(std::int32_t id) const {
  return std::binary_search(defaults_.end_tokens.begin(), defaults_.end_tokens.end(), id);
}

void ModelSession::check_ids(std::span<const std::int32_t> ids) const {
  const std::int64_t rows = model_->embedding_rows();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      fail(ErrorCode::kInvalidArgument, "token {} of the input is {}, the model's ids are 0 … {}",
           i, ids[i], rows - 1);
    }
  }
}

std::int64_t ModelSession::alike_reach(std::int64_t reach) const {
  const std::int64_t own = bl::alike_reach(model_->spec().ropes, reach);
  const DraftHead* draft = model_->draft_head();
  return draft ? std::max(own, bl::alike_reach(draft->spec().layers.ropes, reach)) : own;
}

std::int64_t ModelSession::draft_tokens() const {
  const DraftHead* draft = model_->draft_head();
  return draft != nullptr ? draft->spec().stretch - 1 : 0;
}

std::unique_ptr<PreparedAdapter> ModelSession::prepare_adapter(
    const std::filesystem::path& folder) const {
  return std::make_unique<PreparedAdapter>(
      read_peft_adapter(folder, model_->adapter_sites(), CheckpointNames(*model_->spec().arch)));
}

std::shared_ptr<const LoraAdapter> ModelSession::pack_adapter(const PreparedAdapter& adapter,
                                                              std::size_t used) {
  const std::uint64_t free =
      backend_->reads_host_memory() ? available_host_memory() : backend_->free_memory();
  const std::size_t bytes = adapter.bytes(*backend_);
  // A tenth of the free memory stays for others, except where the memory was reserved.
  if (used + bytes > plan_.adapters && bytes > free - free / 10) {
    fail(ErrorCode::kOutOfMemory, "the adapter needs {}, and {} is free; unload another one",
         human_bytes(static_cast<double>(bytes)), human_bytes(static_cast<double>(free)));
  }
  return adapter.pack(*backend_);
}

PageKind ModelSession::page_kind() const {
  PageKind kind;
  kind.model = identity_->hash();
  kind.rope = rope_identity(model_->spec().ropes);
  kind.order = backend_->page_order();
  kind.type = cache_type_;
  for (const KvLayout& layout : model_->kv_layouts(cache_type_)) {
    kind.layers.push_back({layout.kv_heads, layout.k_dim, layout.v_dim});
  }
  kind.page_bytes = cache_->page_bytes();
  return kind;
}

bool ModelSession::draft_chains() const {
  const DraftHead* draft = model_->draft_head();
  return draft != nullptr && draft->spec().chain;
}

ExecContext ModelSession::begin_step() {
  scratch_.release_to(scratch_begin_);
  ExecContext context = backend_->context(scratch_);
  context.deterministic = deterministic_;
  if (ops_ != nullptr) context.ops = ops_;
  return context;
}

void ModelSession::use_ops(const OpTable* table) { ops_ = table; }

void ModelSession::observe_ops(OpObserver* observer) {
  recorded_ops_.reset();
  if (observer != nullptr) {
    recorded_ops_ = std::make_unique<RecordingTable>(backend_->ops(), *observer);
  }
  use_ops(recorded_ops_.get());
}

}  // namespace bl
