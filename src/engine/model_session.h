#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/page_kind.h"
#include "engine/generation_defaults.h"
#include "engine/model_identity.h"
#include "engine/model_text.h"
#include "engine/sequence.h"
#include "model/adapter_packer.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "ops/backend.h"
#include "ops/recording_table.h"
#include "tensor/arena.h"

namespace bl {

// Of which new tokens of a step logits may be asked.
enum class SessionLogits { kLastOfSequence, kEveryToken };

struct SessionOptions {
  std::filesystem::path model;
  std::shared_ptr<const OpenedModel> opened;  // instead of `model`
  std::string backend = "auto";
  int threads = 0;                  // 0: one a physical core
  std::int64_t context = 0;         // 0: the model's, as far as memory allows
  std::optional<CacheTypes> cache;  // the backend's choice where not given
  double rope_scale = 0;            // 0: the model's
  double rope_alpha = 0;
  std::string layer_map;                  // parse_layer_map(); empty: every layer once
  std::vector<WeightOverride> overrides;  // not where `opened` is given
  std::filesystem::path archs;
  // Side layers that guess how texts go on (model/draft_spec.h); null: none.
  std::shared_ptr<const OpenedModel> draft_layers;
  bool mtp = false;  // the model's own such layers, in their place
  bool deterministic = false;
  bool with_text = true;  // tokenizer and templates too

  std::int64_t sequences = 1;     // at once
  std::int64_t drafts = 0;        // guessed tokens that a step verifies for each of them, at most
  std::int64_t longest = 0;       // no sequence will be longer; 0: the context
  std::int64_t most_context = 0;  // no more than so many, where neither says a length; 0: any
  std::int32_t pages = 0;         // of the cache; 0: what `sequences` of `longest` need
  std::uint64_t memory = 0;       // bytes of the device to keep to; 0: what is free
  bool embed_host = false;        // the embedding stays in host memory
  std::size_t kv_host = 0;        // bytes of host memory for pages that an engine evicts
  SessionLogits logits = SessionLogits::kLastOfSequence;
  std::size_t adapter_bytes = 0;  // kept free for adapters; more of them need what is free then

  // Bytes of weights loaded; may throw to stop.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
};

// A model ready to run on one backend: weights, cache, work memory, words.
class ModelSession {
 public:
  // Plans the memory first and throws kOutOfMemory where it is not there; else as the rooms below
  // throw.
  static std::unique_ptr<ModelSession> load(const SessionOptions& options);
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  KvCache& cache() { return *cache_; }
  bool has_text() const { return text_ != nullptr; }
  const ModelText& text() const;  // a session without text has none: a bug to ask
  const Tokenizer& tokenizer() const { return text().tokenizer(); }
  const GenerationDefaults& defaults() const { return defaults_; }

  std::int64_t vocab() const { return model_->vocab(); }
  // Of a row of logits, the first tokens, which stand for something: a row may be wider than the
  // vocabulary is. All without a tokenizer.
  std::int64_t choosable() const;
  std::int64_t context() const { return context_; }  // longest sequence
  std::int64_t step_tokens() const { return step_tokens_; }
  std::int64_t logit_rows() const { return logit_rows_; }
  std::int64_t sequences() const { return sequences_; }
  // Tokens that its side layers guess at once; 0: it has none.
  std::int64_t draft_tokens() const;
  bool draft_chains() const;
  // Where a chain of guesses keeps states from step to step; empty where there is none.
  const TensorView& carried() const { return carried_; }
  CarriedPlaces carried_places() const { return {logit_rows_, sequences_}; }
  const MemoryPlan& plan() const { return plan_; }
  // The most of the planned work space that a step has taken so far.
  std::size_t work_peak() const { return scratch_.peak(); }
  std::size_t kv_host() const { return kv_host_; }
  // What the pages of its cache depend on. Thread-safe; throws as ModelIdentity does.
  PageKind page_kind() const;

  bool is_end_token(std::int32_t id) const;
  // Throws kInvalidArgument naming an id that the model does not have.
  void check_ids(std::span<const std::int32_t> ids) const;
  // StepModel::alike_reach().
  std::int64_t alike_reach(std::int64_t reach) const;

  // An adapter, in two steps: the first reads and checks its folder, in any thread and while steps
  // run; the second takes the backend's memory (`used` bytes of it hold adapters already), between
  // steps. Throw as read_peft_adapter does, and kOutOfMemory.
  std::unique_ptr<PreparedAdapter> prepare_adapter(const std::filesystem::path& folder) const;
  std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter& adapter, std::size_t used);

  Sequence new_sequence() { return Sequence(cache_->pool()); }
  // Where what a step of a lane (Backend::run_step) has chosen comes to: two words a wanted row.
  std::span<std::int32_t> fetched(std::size_t lane) { return fetched_[lane]; }
  // And some rows of its logits, [kFetchedRows, vocab()] or fewer.
  static constexpr std::int64_t kFetchedRows = 8;
  std::span<float> fetched_logits(std::size_t lane) { return fetched_logits_[lane]; }
  // What ops need, with the scratch of the step before given back.
  ExecContext begin_step();
  // From now on `observer` hears of every op of every step; null: nobody does. It must outlive the
  // steps.
  void observe_ops(OpObserver* observer);

 private:
  ModelSession() = default;
  void allocate_fetched();
  void take_carried();
  void collect_end_tokens();

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RecordingTable> recorded_ops_;  // null: steps use the backend's own table
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<ModelText> text_;
  Arena scratch_;
  std::size_t scratch_begin_ = 0;  // what is before is not a step's
  TensorView carried_;
  Buffer fetched_memory_;
  std::array<std::span<std::int32_t>, 2> fetched_;
  std::array<std::span<float>, 2> fetched_logits_;
  GenerationDefaults defaults_;
  MemoryPlan plan_;
  std::int64_t context_ = 0;
  std::int64_t step_tokens_ = 0;
  std::int64_t logit_rows_ = 0;
  std::int64_t sequences_ = 0;
  std::size_t kv_host_ = 0;
  CacheTypes cache_type_;
  std::optional<ModelIdentity> identity_;
  bool deterministic_ = false;
};

}  // namespace bl
