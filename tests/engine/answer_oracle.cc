#include "answer_oracle.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "sample/guidance.h"
#include "sample/sampler_chain.h"

namespace bl::test {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  return text;
}

std::size_t letters_of(const ConstraintSpec& constraint) {
  return std::stoul(constraint.text.substr(constraint.text.find('{') + 1));
}

std::size_t bytes_of(const std::vector<std::string>& texts) {
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

}  // namespace

// An answer on its way. Tokens count from the first one chosen.
struct AnswerOracle::Writing {
  explicit Writing(const SamplingParams& params) : chain(params) {
    states.push_back(chain.state());
    for (const std::string& text : params.banned_strings) banned.push_back(lower(text));
  }
  SamplerChain chain;
  std::vector<std::string> banned;
  std::vector<std::int32_t> ids;
  std::vector<std::string> texts;    // of each token, without what the prompt says already
  std::vector<std::string> left;     // of the prompt's text, before each token
  std::vector<SamplerState> states;  // before each token
  std::map<std::size_t, std::vector<std::int32_t>> bars;
  std::size_t given = 0;  // tokens that are not taken back any more
  std::int64_t rewinds = 0;
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

// After a token: what must be taken back, or may not be any more.
void AnswerOracle::watch(Writing& w) const {
  std::string text;
  std::vector<std::size_t> begins;
  for (const std::string& part : w.texts) {
    begins.push_back(text.size());
    text += lower(part);
  }
  const auto token_of = [&](std::size_t byte) {
    const auto behind = std::upper_bound(begins.begin(), begins.end(), byte);
    return static_cast<std::size_t>(behind - begins.begin()) - 1;
  };
  for (std::size_t end = begins.back() + 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& bad : w.banned) {
      if (bad.size() <= end && text.compare(end - bad.size(), bad.size(), bad) == 0) {
        longest = std::max(longest, bad.size());
      }
    }
    if (longest == 0) continue;
    const std::size_t back = std::max(token_of(end - longest), w.given);
    w.bars.erase(w.bars.upper_bound(back), w.bars.end());
    w.bars[back].push_back(w.ids[back]);
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
  bool whole = false;
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
  while (!whole && static_cast<std::int64_t>(w.ids.size() - healed()) < params.max_tokens) {
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
                                       .barred = barred})
                                .id;
    const std::string& piece = pieces_[static_cast<std::size_t>(id)];
    const std::size_t known = std::min(left.size(), piece.size());
    w.ids.push_back(id);
    w.texts.push_back(piece.substr(known));
    w.left.push_back(left.substr(known));
    w.states.push_back(w.chain.state());
    if (!w.banned.empty()) watch(w);
    whole = constrained && bytes_of(w.texts) == letters_of(request.constraint);
  }
  Answer out;
  const auto border = static_cast<std::ptrdiff_t>(healed());
  out.healed.assign(w.ids.begin(), w.ids.begin() + border);
  out.ids.assign(w.ids.begin() + border, w.ids.end());
  for (const std::string& part : w.texts) out.text += part;
  out.rewinds = w.rewinds;
  out.whole = whole;
  return out;
}

}  // namespace bl::test
