#pragma once
// The one way to generate: requests in, events out.
//
//   Engine engine(ModelSession::load({.model = "models/NAME", .sequences = 8}));
//   RequestHandle handle = engine.submit({.prompt = engine.tokenizer().encode("Once upon")});
//   while (std::optional<Event> event = handle.next()) std::cout << event->text;
//
// Goals: many requests in one step, whoever asks from whatever thread; no reader, however slow, and
// no request, however wrong, holds up another one; what a request gets does not depend on what
// else runs. Non-goals: HTTP, chat templates (engine/model_text.h), several models.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/adapter_registry.h"
#include "engine/engine_stats.h"
#include "engine/event_stream.h"
#include "engine/model_session.h"
#include "engine/page_table_view.h"
#include "engine/prefix_files.h"
#include "engine/request.h"
#include "engine/speculation_options.h"
#include "engine/step_model.h"

namespace bl {

class EngineCore;
class RequestIntake;
struct OpenRequest;

struct EngineOptions {
  std::int64_t running = 0;      // choices at once; 0: SessionOptions::sequences
  std::int64_t step_tokens = 0;  // budget of a step; 0: the session's
  std::int64_t requests = 1024;  // open at once, running and waiting; beyond that: refused
  // Ids that their prompts hold in all, of each answer its own; one request alone may hold more.
  std::int64_t prompt_ids = 1 << 28;
  // The model needs rows for what it guesses: SessionOptions::drafts.
  SpeculationOptions speculation{};
  // Host memory for pages that are evicted; 0: SessionOptions::kv_host.
  std::size_t host_bytes = 0;
  // Logits of one request that wait for its reader (return_logits), of all its answers together; at
  // least one row of each.
  std::int64_t unread_logits = 1 << 26;
};

// One choice, whole.
struct Answer {
  void add(Event event);

  std::string text;
  std::vector<std::int32_t> ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<std::int32_t> healed;  // these as in Event
  std::vector<TokenLogprobs> healed_logprobs;
  std::int64_t kept = 0;
  std::vector<WithheldText> suppressed;
  std::vector<std::vector<float>> logits;
  std::string stop_string;
  std::optional<EndToken> end_token;
  WithheldText held;
  FinishReason reason = FinishReason::kCancelled;
  Usage usage;
  std::vector<DraftRound> draft_rounds;
  ErrorCode code = ErrorCode::kInvalidArgument;  // with FinishReason::kError
  std::string error;
};

// A submitted request, as its reader holds it. Going away cancels what is not finished. May be used
// from several threads.
class RequestHandle {
 public:
  RequestHandle(RequestHandle&&) = default;
  RequestHandle& operator=(RequestHandle&& other) noexcept;
  ~RequestHandle();

  // Waits for what is new. Nothing once the last event of every choice has been taken.
  std::optional<Event> next();
  // Waits no longer than `most`; nothing may then be followed by more unless over().
  std::optional<Event> next(std::chrono::milliseconds most);
  bool over() const { return stream_->over(); }
  // Ends it, at the latest one step from now; its last events say so.
  void cancel() { stream_->cancel(); }
  // Reads to the end.
  std::vector<Answer> wait();
  // The request's number, which no other request of the engine has: they rise as requests are
  // submitted.
  std::int64_t number() const { return number_; }

 private:
  friend class Engine;
  RequestHandle(std::shared_ptr<EventStream> stream, std::int32_t choices)
      : stream_(std::move(stream)), choices_(choices) {}
  std::shared_ptr<EventStream> stream_;
  std::int32_t choices_;
  std::int64_t number_ = 0;
};

// A model, and the thread that runs it. Thread-safe.
class Engine {
 public:
  explicit Engine(std::unique_ptr<ModelSession> session, EngineOptions options = {});
  // Any model; `tokenizer` may be null, and must outlive the engine.
  Engine(std::unique_ptr<StepModel> model, const Tokenizer* tokenizer,
         std::vector<std::int32_t> end_tokens, EngineOptions options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();  // open requests end with an error

  // Throws kInvalidArgument for what is wrong about the request and kLimit when the queue is full.
  RequestHandle submit(Request request);
  // The same, but nothing when the queue is full.
  std::optional<RequestHandle> try_submit(Request request);

  // Loads a LoRA (a folder of PEFT) under a name that requests then use; one that has the name
  // already is replaced. Requests that run keep what they began with, and are not held up but while
  // the weights are copied to the device. Waits until it is done. Throws what read_peft_adapter
  // throws, kOutOfMemory, kUnsupported.
  void load_adapter(const std::string& name, const std::filesystem::path& folder);
  // Takes the name away; the memory is given back when no request uses it. Throws kNotFound.
  void unload_adapter(const std::string& name) { adapters_.unload(name); }
  std::vector<AdapterInfo> adapters() const { return adapters_.list(); }

  // Ends everything that has been submitted, running and waiting, as if each had been cancelled.
  void cancel_all();
  // Makes a short answer that nobody reads, so that the first request need not pay for what is set
  // up when it is first used. Throws what ends it, and kLimit when the queue is full.
  void warm_up();

  // Lets the pages of a pinned prompt go. False where nothing is pinned under that name.
  bool unpin(const std::string& name);
  // Evicts what no request and no pin holds: to the host where there is a tier, else it is gone.
  // Returns when it is over.
  void evict();
  // As of the last whole step: an answer may be over before its last step is in them.
  EngineStats stats() const;
  // Waits for the step under way, so that all that has been answered is in them, and all that was
  // submitted before.
  EngineStats settled_stats();
  // What each page of the cache is used for, and by which open requests. Waits for the step under
  // way.
  PageTableView page_table();

  // Saves what the cache has of a request's prompt, or of a pinned one, in whole pages; loads such
  // a file, so that requests of the same salt find it, and pins it where a name is given
  // (engine/prefix_files.h says what they throw; docs/formats/prefix.md). They wait for the
  // engine's thread and for the disk; requests go on meanwhile. A file is trusted like the weights.
  SavedPrefix save_prefix(const Request& request, const std::filesystem::path& file);
  SavedPrefix save_pin(const std::string& name, const std::filesystem::path& file);
  SavedPrefix load_prefix(const std::filesystem::path& file, const std::string& pin = {});

  std::int64_t context() const { return longest_; }  // tokens of prompt and answer
  const Tokenizer& tokenizer() const;
  // The session; absent for a model of one's own. Not to be run by others.
  const ModelSession& session() const;

 private:
  void check(const Request& request) const;
  // Why the queue is full for prompts of so many ids in all; empty where it is not. With mutex_.
  std::string refusal(std::int64_t ids) const;
  std::optional<RequestHandle> try_submit(Request request, std::string& refused);
  void check_pin(const Request& request) const;
  std::shared_ptr<OpenRequest> open(Request request) const;
  SavedPrefix save(PrefixText text, const std::filesystem::path& file);
  // Runs it on the engine's thread between two steps, and waits; throws what it throws.
  void call(std::function<void(EngineCore&)> what);
  void loop();
  void start(std::vector<std::int32_t> end_tokens);

  EngineOptions options_;
  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<StepModel> model_;
  const Tokenizer* tokenizer_ = nullptr;
  StepModel::Facts facts_;
  std::int64_t longest_ = 0;
  std::unique_ptr<EngineCore> core_;  // the thread's, once it runs
  std::unique_ptr<RequestIntake> intake_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  AdapterRegistry adapters_{waker_};
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<OpenRequest>> inbox_;
  std::vector<std::packaged_task<void(EngineCore&)>> calls_;
  std::int64_t submitted_ = 0;
  std::int64_t open_ = 0;  // requests that the thread has taken and that are not over
  // Of the prompts of all that are open.
  std::shared_ptr<std::atomic<std::int64_t>> ids_ = std::make_shared<std::atomic<std::int64_t>>(0);
  EngineStats stats_;
  bool stopping_ = false;
  std::mutex saving_;
  std::thread thread_;
};

}  // namespace bl
