#pragma once
// The one way to generate: requests in, events out.
//
//   Engine engine(ModelSession::load({.model = "models/NAME", .sequences = 8}));
//   RequestHandle handle = engine.submit({.prompt = engine.tokenizer().encode("Once upon")});
//   while (std::optional<Event> event = handle.next()) std::cout << event->text;
//
// Goals: many requests share a step, from any thread; a slow reader or a wrong request never holds
// up another request; what a request gets does not depend on what else runs. Non-goals: HTTP, chat
// templates (engine/model_text.h), several models.

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
#include "engine/embedding.h"
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
  std::int64_t running = 0;      // choices that run at once; 0: SessionOptions::sequences
  std::int64_t step_tokens = 0;  // most tokens of a step; 0: the session's
  std::int64_t requests = 1024;  // most open requests, running and waiting; more are refused
  // Most ids in the prompts of all open requests together, counted once for each answer. A request
  // that is alone may hold more.
  std::int64_t prompt_ids = 1 << 28;
  // Guesses need rows of logits: see SessionOptions::drafts.
  SpeculationOptions speculation{};
  // Bytes of host memory for evicted pages; 0: SessionOptions::kv_host.
  std::size_t host_bytes = 0;
  // With return_logits: how many logits of one request, over all its answers, may wait for its
  // reader. Each answer may always keep one row.
  std::int64_t unread_logits = 1 << 26;
};

// One whole choice, collected from its events.
struct Answer {
  void add(Event event);

  std::string text;
  std::vector<std::int32_t> ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<std::int32_t> healed;  // this and all below: see Event
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

// The reader's side of a submitted request. Destroying it cancels what is not finished. Its
// functions may be called from several threads at once.
class RequestHandle {
 public:
  RequestHandle(RequestHandle&&) = default;
  RequestHandle& operator=(RequestHandle&& other) noexcept;
  ~RequestHandle();

  // Waits for an event. Returns nothing once the last event of every choice has been taken.
  std::optional<Event> next();
  // Waits no longer than `most`. Where it returns nothing, events may still follow unless over().
  std::optional<Event> next(std::chrono::milliseconds most);
  bool over() const { return stream_->over(); }
  // Ends the request at most one step from now; its last events say that it was cancelled.
  void cancel() { stream_->cancel(); }
  // Reads to the end and returns the choices in order.
  std::vector<Answer> wait();

  // Has `callback` called when there is something to read, so that one thread can read thousands
  // of handles: the callback tells that thread which handle to look at, and the thread reads with
  // next(0ms). It takes the place of a callback set before.
  //
  // When: for the first event after the reader has taken all events, and once more for the last
  // event of the request, whatever the reader has taken. Events in between are not announced one
  // by one. So a reader that takes everything after each call misses nothing; it may be called
  // when another look has found everything already. Returns true where there is something to read
  // now (an event, or that the request is over): that is not announced again, so read at once.
  //
  // Where: on the engine's thread, within a step, without any lock of the engine. The callback
  // holds up every request while it runs, so it should only pass the news on. It may use this
  // handle (next(0ms), cancel(), and destroy it) and submit requests. It must not throw, nor wait
  // for the engine: by next() that waits, wait(), ~Engine(), or what engine.h says waits.
  //
  // Until: clear_ready_callback(), a new callback, or the end of the handle. Each of these waits
  // for a call that is under way, and the callback is not called afterwards; within the callback
  // they do not wait. So do not hold a lock meanwhile that the callback takes.
  [[nodiscard]] bool set_ready_callback(std::function<void()> callback);
  void clear_ready_callback();

  // The request's number, unique in its engine; later requests have higher ones.
  std::int64_t number() const { return number_; }

 private:
  friend class Engine;
  RequestHandle(std::shared_ptr<EventStream> stream, std::int32_t choices)
      : stream_(std::move(stream)), choices_(choices) {}
  std::shared_ptr<EventStream> stream_;
  std::int32_t choices_;
  std::int64_t number_ = 0;
};

// A model and the thread that runs it. Thread-safe.
class Engine {
 public:
  explicit Engine(std::unique_ptr<ModelSession> session, EngineOptions options = {});
  // Runs any model. `tokenizer` may be null, and must outlive the engine.
  Engine(std::unique_ptr<StepModel> model, const Tokenizer* tokenizer,
         std::vector<std::int32_t> end_tokens, EngineOptions options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Ends open requests with an error, and waits for the engine's thread.
  ~Engine();

  // Throws kInvalidArgument for a wrong request, and kLimit when the queue is full.
  RequestHandle submit(Request request);
  // Returns nothing when the queue is full; otherwise as submit().
  std::optional<RequestHandle> try_submit(Request request);

  // Loads a LoRA adapter (a PEFT folder) under a name that requests can use, in place of the one
  // that has this name now. Running requests keep the adapter that they began with, and are held
  // up only while weights are copied to the device. Waits until it is done. Throws what
  // read_peft_adapter throws, kOutOfMemory, kUnsupported.
  void load_adapter(const std::string& name, const std::filesystem::path& folder);
  // Removes the name. The memory is freed when no request uses the adapter. Throws kNotFound.
  void unload_adapter(const std::string& name) { adapters_.unload(name); }
  std::vector<AdapterInfo> adapters() const { return adapters_.list(); }

  // Chooses all further tokens of a request by other parameters: those of the sampler chain change,
  // while what the engine does around it (limits, stop strings, what is reported) stays as it was
  // submitted. Waits for the step under way. Nothing happens where the request is over. Throws
  // kInvalidArgument for wrong parameters.
  void change_sampling(const RequestHandle& handle, SamplingParams sampling);

  // Cancels every request that has been submitted, running or waiting. Waits for the step under
  // way.
  void cancel_all();
  // Makes a short answer that is thrown away, so that the first request does not pay for what is
  // set up on first use. Waits for it. Throws the error that ends it, and kLimit when the queue is
  // full.
  void warm_up();

  // Unpins a prompt, so that its pages may be evicted. Returns false where nothing is pinned under
  // that name. Waits for the step under way.
  bool unpin(const std::string& name);
  // Evicts every page that no request and no pin holds, to host memory where there is some for it.
  // Waits until that is done.
  void evict();
  // As of the last whole step. An answer may be over before its last step is counted.
  EngineStats stats() const;
  // Waits for the step under way, and so counts everything that was answered or submitted before
  // the call.
  EngineStats settled_stats();
  // Tells what each page of the cache is used for, and by which open requests. Waits for the step
  // under way.
  PageTableView page_table();

  // Save the whole pages that the cache has of a request's prompt, or of a pinned one; load such a
  // file, so that requests of the same salt find it, and pin it where `pin` is a name. They wait
  // for the engine's thread and for the disk; other requests go on meanwhile. A file is trusted
  // like the weights. engine/prefix_files.h says what they throw, docs/formats/prefix.md what a
  // file holds.
  SavedPrefix save_prefix(const Request& request, const std::filesystem::path& file);
  SavedPrefix save_pin(const std::string& name, const std::filesystem::path& file);
  SavedPrefix load_prefix(const std::filesystem::path& file, const std::string& pin = {});

  // Computes the embeddings of texts between the steps of requests, one vector [hidden] for each.
  // Waits until that is done. Throws kInvalidArgument for a wrong request, and as embed_texts().
  std::vector<std::vector<float>> embed(const EmbedRequest& request);

  std::int64_t context() const { return longest_; }  // most tokens of a prompt and its answer
  const Tokenizer& tokenizer() const;
  // The session of an engine that was made with one. Only the engine may run it.
  const ModelSession& session() const;

 private:
  void check(const Request& request) const;
  // Returns why the queue has no room for prompts of `ids` ids in all; empty where it has. The
  // caller holds mutex_.
  std::string refusal(std::int64_t ids) const;
  std::optional<RequestHandle> try_submit(Request request, std::string& refused);
  void check_pin(const Request& request) const;
  std::shared_ptr<OpenRequest> open(Request request) const;
  SavedPrefix save(PrefixText text, const std::filesystem::path& file);
  // Runs `what` on the engine's thread between two steps and waits for it. Throws what it throws.
  void call(std::function<void(EngineCore&)> what);
  void loop();
  void start(std::vector<std::int32_t> end_tokens);

  EngineOptions options_;
  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<StepModel> model_;
  const Tokenizer* tokenizer_ = nullptr;
  StepModel::Facts facts_;
  std::int64_t longest_ = 0;
  std::unique_ptr<EngineCore> core_;  // only thread_ uses it, once that runs
  std::unique_ptr<RequestIntake> intake_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  AdapterRegistry adapters_{waker_};
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<OpenRequest>> inbox_;
  std::vector<std::packaged_task<void(EngineCore&)>> calls_;
  std::int64_t submitted_ = 0;
  std::int64_t open_ = 0;  // requests that have left inbox_ and are not over
  // Ids in the prompts of all open requests (EngineOptions::prompt_ids).
  std::shared_ptr<std::atomic<std::int64_t>> ids_ = std::make_shared<std::atomic<std::int64_t>>(0);
  EngineStats stats_;
  bool stopping_ = false;
  std::mutex saving_;
  std::thread thread_;
};

}  // namespace bl
