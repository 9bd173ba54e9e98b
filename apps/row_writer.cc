#include "row_writer.h"

#include <algorithm>

#include "base/error.h"

namespace bl {
namespace {

// A user's message of more tokens is cut: models that were trained to answer rarely end a message.
constexpr std::int64_t kMessageTokens = 256;

bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// The text of a token without leading blanks; empty unless it begins with a letter and is whole
// characters.
std::string word_of(const Tokenizer& tokenizer, std::int32_t id) {
  std::string word = tokenizer.decode(std::span(&id, 1), true);
  word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
  const bool is_whole = word.find("\xEF\xBF\xBD") == word.npos;
  return !word.empty() && is_letter(word.front()) && is_whole ? word : "";
}

bool has_space_mark(std::string_view token) {
  return token.starts_with("Ġ") || token.starts_with("▁");
}

}  // namespace

FirstWords::FirstWords(const ModelSession& session) : session_(session) {
  const Tokenizer& tokenizer = session.tokenizer();
  std::vector<std::string> others;  // for vocabularies that mark no beginnings of words
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    std::string word = word_of(tokenizer, id);
    if (word.empty()) continue;
    (has_space_mark(tokenizer.id_to_token(id)) ? words_ : others).push_back(std::move(word));
  }
  if (words_.empty()) words_ = std::move(others);
  if (words_.empty()) {
    fail(ErrorCode::kUnsupported,
         "the vocabulary has no token that begins with a letter, which texts could begin with; "
         "give texts with -c");
  }
}

std::vector<std::int32_t> FirstWords::draw(std::mt19937_64& random) const {
  const std::string& word = words_[random() % words_.size()];
  std::vector<std::int32_t> ids = session_.tokenizer().encode(word, {.parse_special = false});
  // Some tokenizers close a text as well.
  while (ids.size() > 1 && session_.is_end_token(ids.back())) ids.pop_back();
  return ids;
}

RowWriter::RowWriter(const FirstWords& words, const ChatFrame* frame, std::int64_t length,
                     std::uint64_t seed)
    : words_(words), frame_(frame), length_(length), random_(seed) {
  begin();
}

void RowWriter::begin() {
  text_begin_ = row_.size();
  part_ = frame_ ? Part::kMessage : Part::kText;
  append(frame_ ? frame_->opening : words_.draw(random_));
}

void RowWriter::append(std::span<const std::int32_t> ids) {
  row_.insert(row_.end(), ids.begin(), ids.end());
}

std::span<const std::int32_t> RowWriter::closing() const {
  if (part_ == Part::kText) return {};
  return part_ == Part::kMessage ? frame_->after_user : frame_->after_answer;
}

Request RowWriter::next_request(const Tokenizer& tokenizer) {
  Request request;
  request.prompt.assign(row_.begin() + static_cast<std::ptrdiff_t>(text_begin_), row_.end());
  request.sampling = SamplingParams::plain();
  request.sampling.seed = random_();
  request.sampling.max_tokens = length_ - std::ssize(row_);
  if (part_ == Part::kMessage) {
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, kMessageTokens);
  }
  request.sampling.min_tokens = part_ == Part::kText ? 0 : 1;
  const std::span<const std::int32_t> behind = closing();
  if (!behind.empty() && tokenizer.is_special(behind.front())) {
    request.sampling.stop_tokens = {behind.front()};
  }
  return request;
}

void RowWriter::add(const Answer& answer) {
  append(answer.ids);
  if (full()) return;
  const std::span<const std::int32_t> behind = closing();
  const bool ended = answer.reason == FinishReason::kEndToken;
  const bool turn_ended = ended && !behind.empty() && row_.back() == behind.front();
  const bool cut = part_ == Part::kMessage && !ended;
  if (!turn_ended && !cut) return begin();
  append(turn_ended ? behind.subspan(1) : behind);
  part_ = part_ == Part::kMessage ? Part::kAnswer : Part::kMessage;
}

std::vector<std::int32_t> RowWriter::take() {
  row_.resize(static_cast<std::size_t>(length_));
  return std::move(row_);
}

}  // namespace bl
