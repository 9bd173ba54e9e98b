#include "answer_oracle.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>

#include "sample/guidance.h"
#include "sample/sampler_chain.h"

namespace bl::test {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  return text;
}

bool is_end(const Request& request, std::int32_t id) {
  const std::vector<std::int32_t>& stops = request.sampling.stop_tokens;
  return (id == FakeModel::kEnd && !request.ignore_end_tokens) ||
         std::find(stops.begin(), stops.end(), id) != stops.end();
}

std::size_t letters_of(const ConstraintSpec& constraint) {
  return std::stoul(constraint.text.substr(constraint.text.find('{') + 1));
}

// Bytes of the longest of some strings that ends at `end`; 0: none does.
std::size_t longest_before(std::string_view text, std::size_t end,
                           const std::vector<std::string>& strings) {
  std::size_t longest = 0;
  for (const std::string& one : strings) {
    if (text.substr(0, end).ends_with(one)) longest = std::max(longest, one.size());
  }
  return longest;
}

std::size_t bytes_of(const std::vector<std::string>& texts) {
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

}  // namespace

// An answer on its way. Tokens count from the first one chosen.
struct AnswerOracle::Writing {
  explicit Writing(const SamplingParams& params) : chain(params), stops(params.stop_strings) {
    states.push_back(chain.state());
    for (const std::string& text : params.banned_strings) banned.push_back(lower(text));
  }
  SamplerChain chain;
  std::vector<std::string> banned;
  std::vector<std::string> stops;
  std::optional<std::size_t> stop{};  // where in the text one of these begins, whole
  std::vector<std::int32_t> ids;
  std::vector<std::string> texts;    // of each token, without what the prompt says already
  std::vector<std::string> left;     // of the prompt's text, before each token
  std::vector<SamplerState> states;  // before each token
  std::map<std::size_t, std::vector<std::int32_t>> bars;
  std::size_t given = 0;  // tokens that are not taken back any more
  std::int64_t rewinds = 0;
  std::vector<WithheldText> suppressed;
};

// The tokens that a constraint leaves out behind so many letters.
std::vector<std::int32_t> AnswerOracle::outside(const ConstraintSpec& constraint,
                                                std::size_t said) const {
  const std::string letters = constraint.text.substr(1, constraint.text.find(']') - 1);
  const std::size_t left = letters_of(constraint) - said;
  std::vector<std::int32_t> out;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const std::string& piece = pieces_[id];
    if (piece.size() <= left && piece.find_first_not_of(letters) == piece.npos) continue;
    out.push_back(static_cast<std::int32_t>(id));
  }
  return out;
}

std::size_t AnswerOracle::removed(const std::vector<std::int32_t>& prompt) const {
  std::size_t removed = 0;
  std::string text;
  for (std::size_t i = 1; i <= 8 && i < prompt.size(); ++i) {
    text = pieces_[static_cast<std::size_t>(prompt[prompt.size() - i])] + text;
    for (const std::string& piece : pieces_) {
      if (piece.compare(0, text.size(), text) == 0) removed = i;
    }
  }
  return removed;
}

// After a token: whether the answer stops, what must be taken back, or may not be any more.
void AnswerOracle::watch(Writing& w) const {
  std::string written;
  std::vector<std::size_t> begins;
  for (const std::string& part : w.texts) {
    begins.push_back(written.size());
    written += part;
  }
  const std::string text = lower(written);
  const auto token_of = [&](std::size_t byte) {
    const auto behind = std::upper_bound(begins.begin(), begins.end(), byte);
    return static_cast<std::size_t>(behind - begins.begin()) - 1;
  };
  for (std::size_t end = begins.back() + 1; end <= text.size(); ++end) {
    if (const std::size_t stop = longest_before(written, end, w.stops); stop > 0) {
      w.stop = end - stop;
      return;
    }
    const std::size_t longest = longest_before(text, end, w.banned);
    if (longest == 0) continue;
    const std::size_t back = std::max(token_of(end - longest), w.given);
    w.bars.erase(w.bars.upper_bound(back), w.bars.end());
    w.bars[back].push_back(w.ids[back]);
    WithheldText& suppressed = w.suppressed.emplace_back();
    for (std::size_t i = back; i < w.ids.size(); ++i) {
      suppressed.ids.push_back(w.ids[i]);
      suppressed.text += w.texts[i];
    }
    w.ids.resize(back);
    w.texts.resize(back);
    w.left.resize(back + 1);
    w.chain.restore(w.states[back]);
    w.states.erase(w.states.begin() + static_cast<std::ptrdiff_t>(back) + 1, w.states.end());
    ++w.rewinds;
    return;
  }
  std::size_t open = 0;
  for (const std::string& bad : w.banned) {
    for (std::size_t size = 1; size < bad.size() && size <= text.size(); ++size) {
      if (text.compare(text.size() - size, size, bad, 0, size) == 0) open = std::max(open, size);
    }
  }
  w.given = std::max(w.given, open == 0 ? w.ids.size() : token_of(text.size() - open));
}

AnswerOracle::Answer AnswerOracle::answer(const Request& request, std::int32_t index) const {
  SamplingParams params = request.sampling;
  params.seed = seed_of_answer(params.seed, index);
  Writing w(params);
  const AdapterMix adapters = adapters_of(request);
  const bool constrained = !!request.constraint;
  std::optional<FinishReason> ending;
  std::vector<std::int32_t> prompt = request.prompt;
  const std::size_t count = params.token_healing ? removed(prompt) : 0;
  std::vector<std::string> words;  // taken off
  for (std::size_t i = prompt.size() - count; i < prompt.size(); ++i) {
    words.push_back(pieces_[static_cast<std::size_t>(prompt[i])]);
  }
  prompt.resize(prompt.size() - count);
  std::string rest;
  for (const std::string& word : words) rest += word;
  w.left.push_back(rest);

  const auto healed = [&] {
    return static_cast<std::size_t>(
        std::count_if(w.left.begin(), w.left.end() - 1, [](const auto& t) { return !t.empty(); }));
  };
  while (!ending && static_cast<std::int64_t>(w.ids.size() - healed()) < params.max_tokens) {
    const std::size_t at = w.ids.size();
    std::vector<std::int32_t> text = prompt;
    text.insert(text.end(), w.ids.begin(), w.ids.end());
    std::vector<float> row = model_.row(text, adapters);
    if (params.cfg_scale != 1) {
      std::vector<std::int32_t> other = request.negative_prompt;
      other.insert(other.end(), w.ids.begin(), w.ids.end());
      mix_guidance(row, model_.row(other, adapters), params.cfg_scale, row);
    }
    const std::string left = w.left[at];
    std::vector<std::int32_t> barred = w.bars[at];
    for (std::size_t id = 0; id < pieces_.size() && !left.empty(); ++id) {
      // Beyond what is left, or up to the end of one of the words.
      const std::string& piece = pieces_[id];
      bool allowed = piece.compare(0, left.size(), left) == 0;
      std::string tail;
      for (std::size_t i = words.size(); i > 0; --i) {
        tail = words[i - 1] + tail;
        allowed = allowed || (tail.size() < left.size() && piece + tail == left);
      }
      if (!allowed) barred.push_back(static_cast<std::int32_t>(id));
    }
    if (constrained) {
      const std::vector<std::int32_t> others = outside(request.constraint, bytes_of(w.texts));
      barred.insert(barred.end(), others.begin(), others.end());
    }
    const std::int32_t id = w.chain
                                .pick({.logits = row,
                                       .history = text,
                                       .position = text.size(),
                                       .generated = static_cast<std::int64_t>(at - healed()),
                                       .rewinds = static_cast<std::uint32_t>(w.rewinds),
                                       .barred = barred})
                                .id;
    if (is_end(request, id)) {
      w.ids.push_back(id);
      w.left.emplace_back();
      ending = FinishReason::kEndToken;
      break;
    }
    const std::string& piece = pieces_[static_cast<std::size_t>(id)];
    const std::size_t known = std::min(left.size(), piece.size());
    w.ids.push_back(id);
    w.texts.push_back(piece.substr(known));
    w.left.push_back(left.substr(known));
    w.states.push_back(w.chain.state());
    if (!w.banned.empty() || !w.stops.empty()) watch(w);
    if (w.stop) {
      ending = FinishReason::kStopString;
    } else if (constrained && bytes_of(w.texts) == letters_of(request.constraint)) {
      ending = FinishReason::kConstraint;
    }
  }
  Answer out;
  const auto border = static_cast<std::ptrdiff_t>(healed());
  out.healed.assign(w.ids.begin(), w.ids.begin() + border);
  out.ids.assign(w.ids.begin() + border, w.ids.end());
  for (const std::string& part : w.texts) out.text += part;
  if (w.stop) out.text.resize(*w.stop);
  out.rewinds = w.rewinds;
  out.suppressed = w.suppressed;
  out.reason = ending.value_or(FinishReason::kMaxTokens);
  return out;
}

}  // namespace bl::test
