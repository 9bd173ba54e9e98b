#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_formats.h"
#include "api/logprobs.h"
#include "api/request_fields.h"
#include "engine/engine.h"
#include "server/model_card.h"
#include "server/model_room.h"

namespace bl::server {

// An adapter of a model, and the weight with which requests use it unless they say otherwise.
struct ServedAdapter {
  std::string name;
  std::filesystem::path path;
  double weight = 1;
};

// A loaded model and what requests to it leave open. Thread-safe.
class ServedModel {
 public:
  struct Args {
    std::unique_ptr<Engine> engine;  // made with a session that has text
    std::vector<std::string> names;  // the first is its name in answers; "*": any name is its
    openai::RequestDefaults otherwise{};
    SamplingParams sampling{};
    std::vector<ServedAdapter> adapters{};  // loaded already; `otherwise` need not have them
    std::optional<Pooling> pooling{};       // of embeddings; nothing: the last token
    std::string file{};                     // the name of its folder or file
    bool generates = true;                  // otherwise it only embeds texts
    bool reranks = false;                   // orders documents by their embeddings
    bool has_seed = false;                  // requests that name no seed have that of `sampling`
  };
  explicit ServedModel(Args args);

  Engine& engine() { return *args_.engine; }
  const std::string& name() const { return args_.names.front(); }
  const std::string& file() const { return args_.file; }
  const std::vector<std::string>& names() const { return args_.names; }
  std::int64_t created() const { return created_; }  // Unix seconds of loading
  const std::shared_ptr<const ModelCard>& card() const { return card_; }
  ModelMemory memory() const;  // that it was planned to take
  bool generates() const { return args_.generates; }
  bool reranks() const { return args_.reranks; }
  Pooling pooling() const { return args_.pooling.value_or(Pooling::kLast); }

  // What holds for requests that begin now.
  openai::RequestDefaults otherwise() const;
  // What a request leaves open; with another seed at each call, below 2^32 because clients in
  // JavaScript read seeds in answers.
  SamplingParams sampling() const;
  const openai::Logprobs& logprobs() const { return logprobs_; }

  void set_preset(const std::optional<SamplingPreset>& preset);  // in place of the present one

  std::vector<ServedAdapter> adapters() const;
  // Loads an adapter, or replaces the one of the same name. Throws what Engine::load_adapter
  // throws.
  void load_adapter(ServedAdapter adapter);
  void unload_adapter(const std::string& name);  // throws kNotFound
  // The weights of the adapters by their index in adapters(); the others get none.
  void set_adapter_weights(const std::vector<std::pair<std::size_t, double>>& weights);

  // Uses another chat template from now on; null: the model's own again. `name`: for lists.
  void set_template(std::shared_ptr<const ChatTemplate> chat_template, std::string name);
  std::string template_name() const;  // of the last set_template(); empty: the model's own

  // Calls use(text, formats) while no other thread does: both fill in what they lack on first use.
  template <class Use>
  auto with_chats(Use&& use) {
    const std::scoped_lock lock(text_mutex_);
    return use(text(), formats_);
  }
  // Calls use(text) while no other thread does: templates are parsed on first use.
  template <class Use>
  auto with_text(Use&& use) const {
    const std::scoped_lock lock(text_mutex_);
    return use(text());
  }

 private:
  const ModelText& text() const { return text_ ? *text_ : args_.engine->session().text(); }

  Args args_;
  openai::Logprobs logprobs_;
  std::int64_t created_;
  std::shared_ptr<const ModelCard> card_;
  mutable std::mutex mutex_;  // of args_.otherwise, args_.adapters
  mutable std::mutex text_mutex_;
  std::unique_ptr<ModelText> text_;  // null: the session's
  openai::AnswerFormats formats_;
  std::string template_name_;
};

}  // namespace bl::server
