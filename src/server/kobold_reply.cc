#include "server/kobold_reply.h"

#include <algorithm>
#include <utility>

#include "api/finish.h"
#include "base/json.h"
#include "server/error_shape.h"

namespace bl::server {

void KoboldAnswers::Text::add(const std::string& more) {
  const std::scoped_lock lock(mutex_);
  text_ += more;
}

std::string KoboldAnswers::Text::read() const {
  const std::scoped_lock lock(mutex_);
  return text_;
}

void KoboldAnswers::add(const std::string& owner, const std::string& genkey,
                        std::weak_ptr<Generation> generation, std::shared_ptr<Text> text) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) {
    const auto known = entry.generation.lock();
    return known == nullptr || known->over();
  });
  entries_.push_back({owner, genkey, std::move(generation), std::move(text)});
}

template <class Visit>
void KoboldAnswers::each(const std::string& owner, const std::string& genkey, Visit&& visit) const {
  std::vector<std::pair<std::shared_ptr<Generation>, Entry>> found;
  {
    const std::scoped_lock lock(mutex_);
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->owner != owner || (!genkey.empty() && entry->genkey != genkey)) continue;
      auto generation = entry->generation.lock();
      if (generation != nullptr && !generation->over()) {
        found.emplace_back(std::move(generation), *entry);
      }
    }
  }
  for (const auto& [generation, entry] : found) {
    if (!visit(entry, *generation)) return;
  }
}

std::string KoboldAnswers::text_of(const std::string& owner, const std::string& genkey) const {
  std::string text;
  each(owner, genkey, [&](const Entry& entry, Generation&) {
    text = entry.text->read();
    return false;
  });
  return text;
}

bool KoboldAnswers::abort(const std::string& owner, const std::string& genkey) {
  bool any = false;
  each(owner, genkey, [&](const Entry&, Generation& generation) {
    generation.cancel();
    any = true;
    return !genkey.empty();
  });
  return any;
}

KoboldReply::KoboldReply(Args args) : args_(std::move(args)), choices_(args_.choices) {}

void KoboldReply::send(const std::string& text, const char* finish, http::Exchange& to) {
  Json chunk = {{"token", text}, {"finish_reason", nullptr}};
  if (finish != nullptr) chunk["finish_reason"] = finish;
  stream_.event(to, "message", chunk);
}

void KoboldReply::on_event(std::size_t, Event event, http::Exchange& to) {
  if (event.finish == FinishReason::kError) throw Error(event.code, event.error);
  Choice& choice = choices_.at(static_cast<std::size_t>(event.choice));
  if (args_.keeps_stop && event.finish == FinishReason::kStopString)
    event.text += event.stop_string;
  if (event.choice == 0) args_.text->add(event.text);
  if (event.finish) {
    choice.finish = openai::finish_reason(*event.finish);
    choice.usage = event.usage;
  }
  if (!args_.stream) {
    choice.text += event.text;
    return;
  }
  if (!event.text.empty()) send(event.text, nullptr, to);
  if (event.finish) send("", choice.finish, to);
}

void KoboldReply::on_end(http::Exchange& to) {
  if (args_.stream) {
    stream_.begin(to);
    return to.end();
  }
  Json results = Json::array();
  for (const Choice& choice : choices_) {
    results.push_back({{"text", choice.text},
                       {"finish_reason", choice.finish},
                       {"logprobs", nullptr},
                       {"prompt_tokens", choice.usage.prompt_tokens},
                       {"completion_tokens", choice.usage.generated_tokens}});
  }
  respond_json(to, {{"results", std::move(results)}});
}

void KoboldReply::on_error(const Error& error, http::Exchange& to) {
  if (!stream_.begun()) return to.respond(error_response(ErrorShape::kKobold, error));
  stream_.event(to, "error", error_body(ErrorShape::kKobold, error));
  to.end();
}

bool KoboldReply::on_quiet(http::Exchange& to) {
  if (!args_.stream) return false;
  stream_.comment(to);
  return true;
}

}  // namespace bl::server
