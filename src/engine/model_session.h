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

// For which new tokens of a step logits may be asked.
enum class SessionLogits { kLastOfSequence, kEveryToken };

struct SessionOptions {
  std::filesystem::path model;
  std::shared_ptr<const OpenedModel> opened;  // used instead of `model`
  std::string backend = "auto";
  int threads = 0;                  // 0: one per physical core
  std::int64_t context = 0;         // tokens; 0: the model's, as far as memory allows
  std::optional<CacheTypes> cache;  // none: the backend's choice
  double rope_scale = 0;            // 0: the model's
  double rope_alpha = 0;
  std::string layer_map;                  // parse_layer_map(); empty: every layer once
  std::vector<WeightOverride> overrides;  // must be empty where `opened` is given
  std::filesystem::path archs;
  // Side layers that guess the next tokens (model/draft_spec.h); null: none.
  std::shared_ptr<const OpenedModel> draft_layers;
  bool mtp = false;  // uses the model's own side layers instead
  bool deterministic = false;
  bool with_text = true;  // loads the tokenizer and the chat templates too
  std::shared_ptr<const ChatTemplate> chat_template;  // used instead of the model's; null: none

  std::int64_t sequences = 1;     // that run at once
  std::int64_t drafts = 0;        // guesses that a step verifies per sequence, at most
  std::int64_t longest = 0;       // tokens of the longest sequence; 0: the context
  std::int64_t most_context = 0;  // limits a context that neither of the two gives; 0: no limit
  std::int32_t pages = 0;         // of the cache; 0: what `sequences` of `longest` tokens need
  std::uint64_t memory = 0;       // bytes of device memory to use at most; 0: what is free
  bool embed_host = false;        // keeps the embedding in host memory
  std::size_t kv_host = 0;        // bytes of host memory for pages that an engine evicts
  SessionLogits logits = SessionLogits::kLastOfSequence;
  std::size_t adapter_bytes = 0;  // reserved for adapters; further ones need free memory

  // Called with the bytes of weights loaded so far; may throw to stop loading.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
};

// A model ready to run on one backend: weights, KV cache, work memory, tokenizer.
//
// Invariant: all memory that steps need is allocated when load() returns.
class ModelSession {
 public:
  // Plans the memory first, and throws kOutOfMemory where there is too little. Throws what opening,
  // reading and packing the model throw.
  static std::unique_ptr<ModelSession> load(const SessionOptions& options);
  // Returns the memory that load() would take within options.memory, without loading; 0 there:
  // within what is free now. Throws as load() does before it reads any weights.
  static MemoryPlan plan_of(const SessionOptions& options);
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  KvCache& cache() { return *cache_; }
  bool has_text() const { return text_ != nullptr; }
  const ModelText& text() const;  // requires has_text()
  const Tokenizer& tokenizer() const { return text().tokenizer(); }
  const GenerationDefaults& defaults() const { return defaults_; }

  std::int64_t vocab() const { return model_->vocab(); }
  // How many tokens of a row of logits may be chosen, from the first on: a row may be wider than
  // the tokenizer's vocabulary. Without a tokenizer, all.
  std::int64_t choosable() const;
  std::int64_t context() const { return context_; }  // tokens of the longest sequence
  std::int64_t step_tokens() const { return step_tokens_; }
  std::int64_t logit_rows() const { return logit_rows_; }
  std::int64_t sequences() const { return sequences_; }
  // Tokens that its side layers guess at once; 0: it has no side layers.
  std::int64_t draft_tokens() const;
  bool draft_chains() const;
  // Where chained guesses keep hidden states from step to step, F32 [carried_places().rows(),
  // hidden]; empty where guesses are not chained.
  const TensorView& carried() const { return carried_; }
  CarriedPlaces carried_places() const { return {logit_rows_, sequences_}; }
  const MemoryPlan& plan() const { return plan_; }
  CacheTypes cache_types() const { return cache_type_; }
  // The number of weights in its matrices and its embedding, a tied one counted once. Norms and
  // biases are left out.
  std::int64_t parameters() const { return parameters_; }
  // The most bytes of the planned work memory that a step has used so far.
  std::size_t work_peak() const { return scratch_.peak(); }
  std::size_t kv_host() const { return kv_host_; }
  // What the contents of its cache's pages depend on. Thread-safe. Throws what
  // ModelIdentity::hash() throws.
  PageKind page_kind() const;

  bool is_end_token(std::int32_t id) const;
  // Throws kInvalidArgument for an id that the model does not have, and names it.
  void check_ids(std::span<const std::int32_t> ids) const;
  // As StepModel::alike_reach().
  std::int64_t alike_reach(std::int64_t reach) const;

  // Loads an adapter in two parts: prepare_adapter() reads and checks its folder, on any thread and
  // while steps run; pack_adapter() takes device memory, of which adapters have `used` bytes
  // already, between steps. They throw what read_peft_adapter throws, and kOutOfMemory.
  std::unique_ptr<PreparedAdapter> prepare_adapter(const std::filesystem::path& folder) const;
  std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter& adapter, std::size_t used);

  Sequence new_sequence() { return Sequence(cache_->pool()); }
  // Host memory for what a step chooses in a step buffer of Backend::run_step: two words per wanted
  // row.
  std::span<std::int32_t> fetched(std::size_t step_buffer) { return fetched_[step_buffer]; }
  // Host memory for some rows of its logits: [min(kFetchedRows, logit_rows()), vocab()].
  static constexpr std::int64_t kFetchedRows = 8;
  std::span<float> fetched_logits(std::size_t step_buffer) { return fetched_logits_[step_buffer]; }
  // The context for the ops of a step; the scratch memory of the step before is free again.
  ExecContext begin_step();
  // From now on steps call the ops of `table`, which must outlive them; null: the backend's own.
  // Steps with other ops than the backend's are never recorded.
  void use_ops(const OpTable* table);
  bool uses_own_ops() const { return ops_ == nullptr; }
  // From now on `observer` hears of every op of every step; null: nobody does. It must outlive the
  // steps.
  void observe_ops(OpObserver* observer);

 private:
  ModelSession() = default;
  void allocate_fetched();
  void take_carried();
  void collect_end_tokens();

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RecordingTable> recorded_ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<ModelText> text_;
  Arena scratch_;
  std::size_t scratch_begin_ = 0;  // scratch before it stays in use between steps
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
  std::int64_t parameters_ = 0;
  std::size_t kv_host_ = 0;
  CacheTypes cache_type_;
  std::optional<ModelIdentity> identity_;
  bool deterministic_ = false;
  const OpTable* ops_ = nullptr;  // null: steps use the backend's own table
};

}  // namespace bl
