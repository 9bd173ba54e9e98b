#include "logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// What no token can be: OpenAI's value for it.
constexpr float kImpossible = -9999;

float finite(float logprob) { return std::max(logprob, kImpossible); }

// Characters of a text that comes in pieces of bytes.
class CharacterCount {
 public:
  void push(std::string_view bytes) {
    open_ += bytes;
    std::string text;
    open_.erase(0, decode_lossy(open_, false, text));
    count_ += count_code_points(text);
    text_ += text;
  }
  // What has come so far is not counted but for a character that is not complete.
  void begin() {
    count_ = 0;
    text_.clear();
  }
  std::size_t count() const { return count_; }
  const std::string& text() const { return text_; }

 private:
  std::string open_;
  std::string text_;
  std::size_t count_ = 0;
};

// Decoders take a space off the beginning of a text that stands by itself, which tokens have.
bool lost_its_space(std::string_view said, std::string_view text) {
  return said.starts_with(' ') && !said.starts_with(text) && said.substr(1).starts_with(text);
}

std::string visible(std::string_view bytes, const char* prefix) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string text = prefix;
  while (!bytes.empty()) {
    const std::string_view character = bytes.substr(0, utf8_size(bytes.front()));
    if (is_valid_utf8(character)) {
      text += character;
      bytes.remove_prefix(character.size());
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes.front()));
      bytes.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

std::string LogprobsJson::bytes_of(std::int32_t id) const {
  if (tokenizer_.is_special(id)) return std::string(tokenizer_.id_to_token(id));
  std::string bytes = bytes_.of(id);
  return bytes.empty() ? tokenizer_.decode({&id, 1}, false) : bytes;
}

std::string LogprobsJson::text_of(std::int32_t id, const char* prefix) const {
  return visible(bytes_of(id), prefix);
}

Json LogprobsJson::token_json(const TokenChance& chance) const {
  const std::string bytes = bytes_of(chance.id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return {{"token", visible(bytes, "")},
          {"logprob", finite(chance.logprob)},
          {"bytes", std::move(list)}};
}

std::vector<LogprobsJson::Shown> LogprobsJson::shown(const Answer& answer,
                                                     std::span<const std::int32_t> prompt) const {
  const auto said = [&](std::int32_t id) {
    return tokenizer_.is_special(id) ? std::string() : bytes_of(id);
  };
  // An answer may complete a character that the prompt has begun.
  constexpr std::size_t kLookBack = 4;
  const std::size_t kept =
      answer.healed.empty()
          ? prompt.size()
          : std::min<std::size_t>(static_cast<std::size_t>(answer.kept), prompt.size());
  CharacterCount text;
  std::size_t known = 0;  // bytes of healed tokens that the prompt has too
  for (std::size_t i = kept - std::min(kept, kLookBack); i < prompt.size(); ++i) {
    const std::string bytes = said(prompt[i]);
    text.push(bytes);
    if (i >= kept) known += bytes.size();
  }
  text.begin();
  std::vector<Shown> all;
  for (const TokenLogprobs& one : answer.healed_logprobs) {
    const std::string bytes = said(one.token.id);
    const std::size_t old = std::min(known, bytes.size());
    known -= old;
    if (old == bytes.size()) continue;
    all.push_back({&one, text.count()});
    text.push(std::string_view(bytes).substr(old));
  }
  for (const TokenLogprobs& one : answer.logprobs) {
    all.push_back({&one, text.count()});
    text.push(said(one.token.id));
  }
  if (lost_its_space(text.text(), answer.text)) {
    for (Shown& one : all) one.offset -= std::min<std::size_t>(one.offset, 1);
  }
  return all;
}

Json LogprobsJson::chat(const Answer& answer, std::span<const std::int32_t> prompt) const {
  Json content = Json::array();
  for (const Shown& one : shown(answer, prompt)) {
    Json token = token_json(one.logprobs->token);
    Json top = Json::array();
    for (const TokenChance& chance : one.logprobs->best) top.push_back(token_json(chance));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json LogprobsJson::completion(const Answer& answer, std::span<const std::int32_t> prompt) const {
  constexpr const char* kPrefix = "bytes:";
  Json tokens = Json::array();
  Json chances = Json::array();
  Json best = Json::array();
  Json offsets = Json::array();
  for (const Shown& one : shown(answer, prompt)) {
    tokens.push_back(text_of(one.logprobs->token.id, kPrefix));
    chances.push_back(finite(one.logprobs->token.logprob));
    offsets.push_back(one.offset);
    Json top = Json::object();
    // The likeliest come first, and the first of a name stays.
    for (const TokenChance& chance : one.logprobs->best) {
      top.emplace(text_of(chance.id, kPrefix), finite(chance.logprob));
    }
    best.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chances)},
          {"top_logprobs", std::move(best)},
          {"text_offset", std::move(offsets)}};
}

Json LogprobsJson::prompt(const Answer& answer) const {
  Json list = Json::array({nullptr});
  for (const TokenLogprobs& one : answer.prompt_logprobs) {
    Json at = Json::object();
    const auto add = [&](const TokenChance& chance) -> Json& {
      Json& entry = at[std::to_string(chance.id)];
      entry["logprob"] = finite(chance.logprob);
      entry["decoded_token"] = text_of(chance.id, "");
      return entry;
    };
    add(one.token);
    for (std::size_t i = 0; i < one.best.size(); ++i) add(one.best[i])["rank"] = i + 1;
    list.push_back(std::move(at));
  }
  return list;
}

}  // namespace bl
