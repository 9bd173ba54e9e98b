#include "server/served_model.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/random_seed.h"

namespace bl::server {
namespace {

ModelCard describe(const ModelSession& session, openai::AnswerFormats& formats) {
  ModelCard card;
  card.facts = facts_of(session);
  const ModelText& text = session.text();
  if (!text.has_chat_template()) return card;
  try {
    card.chat_template = text.chat_template(false).source();
    const AnswerFormat& format = formats.of(text, true).answers;
    card.has_template = true;
    card.has_tools = format.has_calls();
    card.has_reasoning = format.has_reasoning();
  } catch (const Error& error) {  // requests that need the template hear of it, too
    log_warning("the chat template cannot be used: {}", error.what());
  }
  return card;
}

}  // namespace

std::vector<std::string> ModelCard::capabilities() const {
  if (!generates) return {"embeddings"};
  std::vector<std::string> all{"completion"};
  if (has_template) all.emplace_back("chat");
  if (has_tools) all.emplace_back("tools");
  if (has_reasoning) all.emplace_back("reasoning");
  all.emplace_back("embeddings");
  return all;
}

ServedModel::ServedModel(Args args)
    : args_(std::move(args)),
      logprobs_(args_.engine->tokenizer()),
      created_(std::time(nullptr)),
      formats_(args_.engine->session().defaults().end_tokens) {
  BL_CHECK(!args_.names.empty());
  ModelCard card = describe(args_.engine->session(), formats_);
  card.generates = args_.generates;
  card_ = std::make_shared<const ModelCard>(std::move(card));
  if (!args_.adapters.empty()) args_.otherwise.adapters.clear();
}

ModelMemory ServedModel::memory() const { return {card_->facts.memory, card_->facts.host}; }

openai::RequestDefaults ServedModel::otherwise() const {
  const std::scoped_lock lock(mutex_);
  openai::RequestDefaults defaults = args_.otherwise;
  for (const ServedAdapter& adapter : args_.adapters) {
    defaults.adapters.push_back({adapter.name, adapter.weight});
  }
  return defaults;
}

SamplingParams ServedModel::sampling() const {
  SamplingParams sampling = args_.sampling;
  if (!args_.has_seed) sampling.seed = random_seed() & 0xffffffff;
  return sampling;
}

void ServedModel::set_preset(const std::optional<SamplingPreset>& preset) {
  const std::scoped_lock lock(mutex_);
  args_.otherwise.preset = preset;
}

std::vector<ServedAdapter> ServedModel::adapters() const {
  const std::scoped_lock lock(mutex_);
  return args_.adapters;
}

void ServedModel::load_adapter(ServedAdapter adapter) {
  args_.engine->load_adapter(adapter.name, adapter.path);
  const std::scoped_lock lock(mutex_);
  std::erase_if(args_.adapters, [&](const auto& each) { return each.name == adapter.name; });
  args_.adapters.push_back(std::move(adapter));
}

void ServedModel::unload_adapter(const std::string& name) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(args_.adapters, [&](const auto& each) { return each.name == name; });
  }
  args_.engine->unload_adapter(name);
}

void ServedModel::set_adapter_weights(const std::vector<std::pair<std::size_t, double>>& weights) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [index, weight] : weights) {
    if (index >= args_.adapters.size()) {
      fail(ErrorCode::kInvalidArgument, "there is no adapter {}; the model has {}", index,
           args_.adapters.size());
    }
  }
  for (ServedAdapter& adapter : args_.adapters) adapter.weight = 0;
  for (const auto& [index, weight] : weights) args_.adapters[index].weight = weight;
}

void ServedModel::set_template(std::shared_ptr<const ChatTemplate> chat_template,
                               std::string name) {
  const std::scoped_lock lock(text_mutex_);
  template_name_ = std::move(name);
  const ModelText& own = args_.engine->session().text();
  text_ = chat_template ? own.with_template(std::move(chat_template)) : nullptr;
}

std::string ServedModel::template_name() const {
  const std::scoped_lock lock(text_mutex_);
  return template_name_;
}

}  // namespace bl::server
