#include "api/chat_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "base/error.h"

namespace bl::openai {
namespace {

std::string new_call_id() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  constexpr std::uint64_t kLow = 0xffffffff;
  return fmt::format("call_{:016x}{:08x}", random(), random() & kLow);
}

}  // namespace

ChoiceReader::ChoiceReader(std::shared_ptr<const ChatReading> reading)
    : reading_(std::move(reading)),
      parser_(reading_->format, reading_->tools, reading_->options),
      in_reasoning_(reading_->options.start.in_reasoning) {}

std::vector<AnswerEvent> ChoiceReader::push(const Event& event) {
  if (event.finish == FinishReason::kError) throw Error(event.code, event.error);
  std::vector<AnswerEvent> news;
  if (!event.text.empty()) news = parser_.feed(event.text);
  if (event.finish) {
    std::vector<AnswerEvent> rest = parser_.finish();
    news.insert(news.end(), std::make_move_iterator(rest.begin()),
                std::make_move_iterator(rest.end()));
  }
  for (AnswerEvent& one : news) {
    if (one.kind == AnswerEvent::Kind::kCallBegin) {
      ++calls_;
      // Clients tell calls apart by their ids, and models repeat themselves.
      const bool is_taken = std::find(ids_.begin(), ids_.end(), one.id) != ids_.end();
      if (one.id.empty() || is_taken) one.id = new_call_id();
      ids_.push_back(one.id);
    } else if (one.kind == AnswerEvent::Kind::kCallEnd && one.complete) {
      ++complete_;
    }
  }
  count_reasoning(std::ssize(event.ids), news);
  return news;
}

void ChoiceReader::count_reasoning(std::int64_t tokens, const std::vector<AnswerEvent>& news) {
  std::int64_t reasoning = 0;
  std::int64_t all = 0;
  for (const AnswerEvent& one : news) {
    const bool is_reasoning = one.kind == AnswerEvent::Kind::kReasoning;
    const auto size = std::ssize(one.text) + std::ssize(one.name);
    reasoning += is_reasoning ? size : 0;
    all += size;
    if (size > 0) in_reasoning_ = is_reasoning;
  }
  if (all == 0) {
    reasoning_tokens_ += in_reasoning_ ? tokens : 0;  // markers, and text that is held back
  } else {
    reasoning_tokens_ += tokens * reasoning / all;
  }
}

}  // namespace bl::openai
