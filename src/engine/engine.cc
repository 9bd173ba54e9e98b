#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_name.h"
#include "cache/kv_cache.h"
#include "cache/page_memory.h"
#include "engine/engine_core.h"
#include "engine/pinned_prefixes.h"
#include "engine/request_intake.h"
#include "engine/session_model.h"

namespace bl {
namespace {

constexpr double kSecondsOfPriority = 10;
constexpr std::int32_t kMostPriority = 1'000'000;
constexpr std::int32_t kMostSkips = 1'000'000;
constexpr double kMostDeadline = 1e8;
constexpr std::int64_t kWarmUpTokens = 32;

template <class T>
void check_range(const char* name, T value, T low, T high) {
  if (!(value >= low && value <= high)) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, should be in {} … {}", name, value, low, high);
  }
}

void check_ids(std::span<const std::int32_t> ids, const char* what, std::int64_t limit) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limit) {
      fail(ErrorCode::kInvalidArgument, "token {} of the {} is {}, the model's ids are 0 … {}", i,
           what, ids[i], limit - 1);
    }
  }
}

// Each answer holds a copy of the prompt while it waits.
std::int64_t prompt_ids(const Request& request, std::span<const std::int32_t> negative) {
  const std::size_t ids = request.prompt.size() + negative.size();
  return request.sampling.answers() * static_cast<std::int64_t>(ids);
}

}  // namespace

RequestHandle& RequestHandle::operator=(RequestHandle&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(choices_, other.choices_);
  std::swap(number_, other.number_);
  return *this;
}

RequestHandle::~RequestHandle() {
  if (!stream_) return;
  clear_ready_callback();
  if (!stream_->over()) stream_->cancel();
}

bool RequestHandle::set_ready_callback(std::function<void()> callback) {
  return stream_->set_ready_callback(std::move(callback));
}

void RequestHandle::clear_ready_callback() { stream_->set_ready_callback({}); }

std::optional<Event> RequestHandle::next() { return stream_->next(std::nullopt); }

std::optional<Event> RequestHandle::next(std::chrono::milliseconds most) {
  const auto now = EngineClock::now();
  if (most >= std::chrono::floor<std::chrono::milliseconds>(EngineClock::time_point::max() - now)) {
    return next();
  }
  return stream_->next(now + std::max(most, std::chrono::milliseconds::zero()));
}

void Answer::add(Event event) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  text += event.text;
  append(ids, event.ids);
  append(logprobs, event.logprobs);
  append(prompt_logprobs, event.prompt_logprobs);
  if (!event.healed.empty()) kept = event.kept;
  append(healed, event.healed);
  append(healed_logprobs, event.healed_logprobs);
  append(suppressed, event.suppressed);
  append(logits, event.logits);
  if (!event.finish) return;
  reason = *event.finish;
  stop_string = std::move(event.stop_string);
  end_token = std::move(event.end_token);
  held = std::move(event.held);
  usage = event.usage;
  draft_rounds = std::move(event.draft_rounds);
  code = event.code;
  error = std::move(event.error);
}

std::vector<Answer> RequestHandle::wait() {
  std::vector<Answer> answers(static_cast<std::size_t>(choices_));
  while (std::optional<Event> event = next()) {
    answers[static_cast<std::size_t>(event->choice)].add(std::move(*event));
  }
  return answers;
}

Engine::Engine(std::unique_ptr<ModelSession> session, EngineOptions options)
    : options_(std::move(options)),
      session_(std::move(session)),
      model_(std::make_unique<SessionModel>(*session_)) {
  if (options_.host_bytes == 0) options_.host_bytes = session_->kv_host();
  if (session_->has_text()) tokenizer_ = &session_->tokenizer();
  start(session_->defaults().end_tokens);
}

Engine::Engine(std::unique_ptr<StepModel> model, const Tokenizer* tokenizer,
               std::vector<std::int32_t> end_tokens, EngineOptions options)
    : options_(std::move(options)), model_(std::move(model)), tokenizer_(tokenizer) {
  start(std::move(end_tokens));
}

void Engine::start(std::vector<std::int32_t> end_tokens) {
  facts_ = model_->facts();
  if (options_.speculation.source) {
    options_.speculation.source->check_target(tokenizer_, facts_.vocab);
  }
  const std::vector<std::int32_t> of_model = end_tokens;
  longest_ = std::min(facts_.context, std::int64_t{model_->pool().pages()} * kPageSlots);
  core_ = std::make_unique<EngineCore>(
      *model_, tokenizer_,
      EngineCore::Options{options_.running, options_.step_tokens, std::move(end_tokens),
                          options_.speculation, options_.host_bytes});
  intake_ = std::make_unique<RequestIntake>(
      tokenizer_, RequestIntake::Limits{facts_, longest_, core_->most_running(),
                                        model_->pool().pages(), of_model});
  stats_ = core_->stats();
  thread_ = std::thread([this] { loop(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  waker_->wake();
  thread_.join();
}

const Tokenizer& Engine::tokenizer() const {
  BL_CHECK(tokenizer_ != nullptr);
  return *tokenizer_;
}

const ModelSession& Engine::session() const {
  BL_CHECK(session_ != nullptr);
  return *session_;
}

void Engine::check_pin(const Request& request) const {
  if (request.pin.empty()) return;
  PinnedPrefixes::check_name(request.pin);
  const auto full = static_cast<std::int64_t>(request.prompt.size()) / kPageSlots;
  const std::int32_t most = PinnedPrefixes::most_pages(model_->pool().pages());
  if (full == 0) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt of {} tokens cannot be pinned as '{}': only full pages of {} tokens are kept",
         request.prompt.size(), request.pin, kPageSlots);
  }
  if (full > most) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt cannot be pinned as '{}': it has {} full pages, and at most {} of the cache's "
         "{} may be pinned",
         request.pin, full, most, model_->pool().pages());
  }
}

void Engine::check(const Request& request) const {
  if (request.prompt.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt is empty: this tokenizer adds no token of its own, so there is nothing to "
         "continue");
  }
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens >= longest_) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt has {} tokens and the context holds {}; shorten it, or give --ctx {} or more",
         tokens, longest_, tokens + 1);
  }
  check_ids(request.prompt, "prompt", facts_.ids);
  const SamplingParams& params = request.sampling;
  validate(params, facts_.vocab);
  if (request.return_logits && params.answers() > params.n) {
    fail(ErrorCode::kInvalidArgument, "return_logits and best_of exclude each other");
  }
  check_pin(request);
  check_range("priority", request.priority, -kMostPriority, kMostPriority);
  check_range("max_skips", request.max_skips, 0, kMostSkips);
  check_range("the deadline in seconds", request.deadline, 0.0, kMostDeadline);
  check_range<std::int64_t>("unread_tokens", request.unread_tokens, 1, std::int64_t{1} << 40);
}

RequestHandle Engine::submit(Request request) {
  std::string refused;
  std::optional<RequestHandle> handle = try_submit(std::move(request), refused);
  if (!handle) fail(ErrorCode::kLimit, "the queue is full: {}; try again later", refused);
  return std::move(*handle);
}

std::optional<RequestHandle> Engine::try_submit(Request request) {
  std::string refused;
  return try_submit(std::move(request), refused);
}

std::string Engine::refusal(std::int64_t ids) const {
  if (open_ + static_cast<std::int64_t>(inbox_.size()) >= options_.requests) {
    return fmt::format("{} requests are open", options_.requests);
  }
  const std::int64_t held = *ids_;
  if (held == 0 || held + ids <= options_.prompt_ids) return {};
  return fmt::format("the prompts of open requests have {} tokens, {} more are too many", held,
                     ids);
}

// Makes a checked request into one that can join the queue.
std::shared_ptr<OpenRequest> Engine::open(Request request) const {
  const auto now = EngineClock::now();
  auto open = std::make_shared<OpenRequest>();
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  open->longest = longest_;
  const std::int64_t wanted = request.prompt_only ? 1 : request.sampling.max_tokens;
  if (wanted > 0 && wanted <= longest_ - tokens) {
    open->longest = tokens + wanted;
    open->by_limit = true;
  }
  AdapterRegistry::Resolved adapters = adapters_.resolve(request.adapters);
  open->adapters = std::move(adapters.mix);
  open->submitted = now;
  open->rank = std::chrono::duration<double>(now - started_).count() -
               kSecondsOfPriority * static_cast<double>(request.priority);
  if (request.deadline > 0) {
    open->deadline = now + std::chrono::duration_cast<EngineClock::duration>(
                               std::chrono::duration<double>(request.deadline));
  }
  open->request = std::move(request);
  if (open->request.return_logits) {
    const std::int64_t most = options_.unread_logits / (facts_.vocab * open->request.sampling.n);
    open->request.unread_tokens =
        std::min(open->request.unread_tokens, std::max<std::int64_t>(most, 1));
  }
  intake_->complete(*open);
  open->salt = fmt::format("{}:{}:{}", model_->alike_reach(open->longest + open->beyond),
                           adapters.salt, open->request.cache_salt);
  return open;
}

std::optional<RequestHandle> Engine::try_submit(Request request, std::string& refused) {
  check(request);
  {
    // Refuse before a constraint is compiled, which is work.
    const std::lock_guard lock(mutex_);
    refused = refusal(prompt_ids(request, request.negative_prompt));
    if (!refused.empty()) return std::nullopt;
  }
  std::shared_ptr<OpenRequest> open = this->open(std::move(request));
  const std::int64_t ids = prompt_ids(open->request, open->negative);
  const auto answers = static_cast<std::int32_t>(open->request.sampling.n);
  open->stream = std::make_shared<EventStream>(answers, waker_);
  RequestHandle handle(open->stream, answers);
  {
    const std::lock_guard lock(mutex_);
    refused = refusal(ids);
    if (!refused.empty()) return std::nullopt;
    *ids_ += ids;
    open->counted = {nullptr, [all = ids_, ids](void*) { *all -= ids; }};
    open->number = handle.number_ = ++submitted_;
    inbox_.push_back(std::move(open));
  }
  waker_->wake();
  return handle;
}

void Engine::load_adapter(const std::string& name, const std::filesystem::path& folder) {
  adapters_.load(name, model_->prepare_adapter(folder));
}

void Engine::call(std::function<void(EngineCore&)> what) {
  std::packaged_task<void(EngineCore&)> task([&](EngineCore& core) {
    what(core);
    const std::lock_guard lock(mutex_);
    stats_ = core.stats();
    stats_.waiting += static_cast<std::int64_t>(inbox_.size());
  });
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(task));
  }
  waker_->wake();
  done.get();
}

SavedPrefix Engine::save_prefix(const Request& request, const std::filesystem::path& file) {
  check(request);
  const std::shared_ptr<OpenRequest> open = this->open(request);
  return save({model_->page_kind(), open->salt, open->request.prompt}, file);
}

SavedPrefix Engine::save_pin(const std::string& name, const std::filesystem::path& file) {
  PrefixText text{model_->page_kind(), {}, {}};
  call([&](EngineCore& core) {
    const PinnedPrefixes::Pin* pin = core.pins().find(name);
    if (pin == nullptr) fail(ErrorCode::kNotFound, "nothing is pinned as '{}'", name);
    text.salt = pin->salt;
    text.ids = pin->ids;
  });
  return save(std::move(text), file);
}

SavedPrefix Engine::save(PrefixText text, const std::filesystem::path& file) {
  // Two threads that save to the same path would write the same temporary file.
  const std::lock_guard lock(saving_);
  return save_prefix_file([this](const auto& what) { call(what); }, std::move(text), file);
}

SavedPrefix Engine::load_prefix(const std::filesystem::path& file, const std::string& pin) {
  return load_prefix_file([this](const auto& what) { call(what); }, model_->page_kind(), file, pin);
}

std::vector<std::vector<float>> Engine::embed(const EmbedRequest& request) {
  for (std::size_t i = 0; i < request.texts.size(); ++i) {
    const std::vector<std::int32_t>& ids = request.texts[i];
    if (ids.empty()) fail(ErrorCode::kInvalidArgument, "text {} has no token", i);
    if (std::ssize(ids) > longest_) {
      fail(ErrorCode::kInvalidArgument, "text {} has {} tokens and the context holds {}", i,
           ids.size(), longest_);
    }
    check_ids(ids, "text", facts_.ids);
  }
  const AdapterMix adapters = adapters_.resolve(request.adapters).mix;
  return embed_texts([this](const auto& what) { call(what); }, request, adapters);
}

void Engine::change_sampling(const RequestHandle& handle, SamplingParams sampling) {
  validate(sampling, facts_.vocab);
  intake_->complete(sampling);
  const auto shared = std::make_shared<const SamplingParams>(std::move(sampling));
  const std::int64_t number = handle.number();
  call([&](EngineCore& core) { core.change_sampling(number, shared); });
}

void Engine::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<OpenRequest>& open : inbox_) open->stream->cancel();
  }
  call([](EngineCore& core) { core.cancel_all(); });
}

void Engine::warm_up() {
  Request request;
  request.prompt = {0};
  request.sampling.max_tokens = std::min(kWarmUpTokens, longest_ - 1);
  request.ignore_end_tokens = true;
  request.cache_salt = "warm-up";
  const Answer answer = submit(std::move(request)).wait().front();
  if (answer.reason == FinishReason::kError) fail(answer.code, "{}", answer.error);
}

bool Engine::unpin(const std::string& name) {
  bool was_pinned = false;
  call([&](EngineCore& core) { was_pinned = core.unpin(name); });
  return was_pinned;
}

void Engine::evict() {
  call([this](EngineCore& core) {
    core.cache().evict_all();
    if (PageMemory* memory = model_->page_memory()) memory->finish_moves();
  });
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

EngineStats Engine::settled_stats() {
  EngineStats stats;
  call([&](EngineCore& core) { stats = core.stats(); });
  return stats;
}

PageTableView Engine::page_table() {
  PageTableView view;
  call([&](EngineCore& core) { view = core.page_table(); });
  return view;
}

void Engine::loop() {
  name_this_thread("engine");
  while (true) {
    std::vector<std::shared_ptr<OpenRequest>> arrived;
    std::vector<std::packaged_task<void(EngineCore&)>> calls;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      arrived.swap(inbox_);
      calls.swap(calls_);
      open_ += static_cast<std::int64_t>(arrived.size());
    }
    for (const std::shared_ptr<OpenRequest>& open : arrived) core_->add(open);
    // Drop our references now, so that a request that ends in this step is freed with it.
    arrived.clear();
    // After the requests, since a caller may have submitted some of them before its call.
    for (auto& what : calls) what(*core_);
    adapters_.work(*model_);
    const bool moved = core_->step(EngineClock::now());
    {
      const std::lock_guard lock(mutex_);
      open_ = core_->requests();
      stats_ = core_->stats();
      stats_.waiting += static_cast<std::int64_t>(inbox_.size());
    }
    if (!moved) waker_->wait_until(core_->next_deadline());
  }
  for (const std::shared_ptr<OpenRequest>& open : inbox_) core_->add(open);
  for (auto& what : calls_) what(*core_);
  core_->end_all(Error(ErrorCode::kCancelled, "the engine was shut down"));
  adapters_.stop();
}

}  // namespace bl
