#include "api/logprobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace bl::openai {
namespace {

// OpenAI's value for a token that cannot be.
constexpr float kImpossible = -9999;

// Before the name of a token that is no UTF-8.
constexpr const char* kPrefix = "bytes:";

float finite(float logprob) { return std::max(logprob, kImpossible); }

}  // namespace

Json Logprobs::token_json(const TokenChance& chance) const {
  const std::string bytes = names_.bytes(chance.id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return {{"token", TokenNames::text(bytes, "")},
          {"logprob", finite(chance.logprob)},
          {"bytes", std::move(list)}};
}

Json Logprobs::chat(std::span<const ShownToken> tokens) const {
  Json content = Json::array();
  for (const ShownToken& one : tokens) {
    Json token = token_json(one.logprobs.token);
    Json top = Json::array();
    for (const TokenChance& chance : one.logprobs.best) top.push_back(token_json(chance));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json Logprobs::top_json(std::span<const TokenChance> best) const {
  Json top = Json::object();
  // The likeliest come first, and the first of a name stays.
  for (const TokenChance& chance : best) {
    top.emplace(names_.name(chance.id, kPrefix), finite(chance.logprob));
  }
  return top;
}

Json Logprobs::completion(std::span<const ShownToken> tokens) const {
  Json names = Json::array();
  Json chances = Json::array();
  Json best = Json::array();
  Json offsets = Json::array();
  for (const ShownToken& one : tokens) {
    names.push_back(names_.name(one.logprobs.token.id, kPrefix));
    chances.push_back(finite(one.logprobs.token.logprob));
    offsets.push_back(one.offset);
    best.push_back(top_json(one.logprobs.best));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(chances)},
          {"top_logprobs", std::move(best)},
          {"text_offset", std::move(offsets)}};
}

Json Logprobs::chat(const Answer& answer, std::span<const std::int32_t> prompt) const {
  return chat(ShownTokens(names_, prompt).add(answer));
}

Json Logprobs::completion(const Answer& answer, std::span<const std::int32_t> prompt) const {
  return completion(ShownTokens(names_, prompt).add(answer));
}

Json Logprobs::echo(std::span<const std::int32_t> prompt,
                    std::span<const TokenLogprobs> rows) const {
  Json names = Json::array();
  Json chances = Json::array();
  Json best = Json::array();
  Json offsets = Json::array();
  std::size_t characters = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    names.push_back(names_.name(prompt[i], kPrefix));
    offsets.push_back(characters);
    characters += count_code_points(names_.said(prompt[i]));
    const bool is_known = i > 0 && i <= rows.size();
    chances.push_back(is_known ? Json(finite(rows[i - 1].token.logprob)) : Json());
    best.push_back(is_known ? top_json(rows[i - 1].best) : Json());
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(chances)},
          {"top_logprobs", std::move(best)},
          {"text_offset", std::move(offsets)}};
}

Json Logprobs::behind_echo(Json echoed, const Json& logprobs, std::size_t characters) {
  for (const auto& [key, list] : logprobs.items()) {
    for (const Json& item : list) {
      echoed[key].push_back(key == "text_offset" ? Json(item.get<std::size_t>() + characters)
                                                 : item);
    }
  }
  return echoed;
}

Json Logprobs::prompt(const Answer& answer) const {
  Json list = Json::array({nullptr});
  for (const TokenLogprobs& one : answer.prompt_logprobs) {
    Json at = Json::object();
    const auto add = [&](const TokenChance& chance) -> Json& {
      Json& entry = at[std::to_string(chance.id)];
      entry["logprob"] = finite(chance.logprob);
      entry["decoded_token"] = names_.name(chance.id, "");
      return entry;
    };
    add(one.token);
    for (std::size_t i = 0; i < one.best.size(); ++i) add(one.best[i])["rank"] = i + 1;
    list.push_back(std::move(at));
  }
  return list;
}

}  // namespace bl::openai
