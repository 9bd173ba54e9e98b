#include "sample/constraint.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sample/work_budget.h"

namespace bl {
namespace {

constexpr const char* kWhat = "a token of the constrained answer";
constexpr std::size_t kBits = 32;
// Of what the parser remembers, for each small step of accepting a token: a state and its share of
// the tables (xgrammar's ParserState is 40 bytes).
constexpr std::size_t kBytesOfStep = 16;

void set_bit(std::vector<std::uint32_t>& words, std::int32_t token, bool value) {
  const auto at = static_cast<std::size_t>(token);
  if (token < 0 || at / kBits >= words.size()) return;
  const std::uint32_t bit = std::uint32_t{1} << at % kBits;
  words[at / kBits] = value ? words[at / kBits] | bit : words[at / kBits] & ~bit;
}

}  // namespace

Constraint::Constraint(CompiledConstraint compiled, std::vector<std::int32_t> end_tokens)
    : compiled_(std::move(compiled)), end_tokens_(std::move(end_tokens)) {
  credit_ = compiled_.limits.saved_seconds;
  work([&](const WorkBudget&) { walk_ = compiled_.grammar->start(); });
  std::sort(end_tokens_.begin(), end_tokens_.end());
  std::size_t tokens = compiled_.vocab;
  for (const std::int32_t end : end_tokens_) {
    BL_CHECK(end >= 0);
    tokens = std::max(tokens, static_cast<std::size_t>(end) + 1);
  }
  words_.assign((tokens + kBits - 1) / kBits, 0);
}

// Work that is paid for. What it throws makes the constraint unusable.
template <class F>
void Constraint::work(const F& body) {
  if (error_) throw *error_;
  const WorkBudget budget(kWhat, credit_, compiled_.limits.answer_bytes);
  try {
    body(budget);
  } catch (const Error& error) {
    error_ = error;
    throw;
  }
  credit_ -= budget.seconds();
}

void Constraint::prepare() {
  if (prepared_) return;
  prepared_ = true;
  try {
    compute();
  } catch (const Error& error) {
    error_ = error;
  }
}

void Constraint::compute() {
  if (is_free()) {
    std::fill(words_.begin(), words_.end(), ~std::uint32_t{0});
    any_text_ = true;
    set_ends(false);
    return;
  }
  const std::size_t own = (compiled_.vocab + kBits - 1) / kBits;
  std::fill(words_.begin() + static_cast<std::ptrdiff_t>(own), words_.end(), 0);
  work([&](const WorkBudget&) { walk_->fill(std::span(words_).first(own)); });
  set_ends(false);
  const bool whole = walk_->complete();
  // Where no token ends an answer, it is over behind its first one.
  if (whole && compiled_.prefer_end && (accepted_ > 0 || !end_tokens_.empty())) {
    std::fill(words_.begin(), words_.end(), 0);
  }
  any_text_ = std::any_of(words_.begin(), words_.end(), [](std::uint32_t w) { return w != 0; });
  set_ends(whole);
}

void Constraint::set_ends(bool allowed) {
  for (const std::int32_t end : end_tokens_) set_bit(words_, end, allowed);
}

std::span<const std::uint32_t> Constraint::mask() {
  BL_CHECK(ended_ == 0);
  prepare();
  if (error_) throw *error_;
  if (!any_text_ && !complete()) {
    fail(ErrorCode::kInvalidArgument,
         "the constraint cannot be satisfied: no token of this vocabulary may follow the text so "
         "far, which is not whole yet");
  }
  return words_;
}

bool Constraint::allows(std::int32_t token) {
  const std::span<const std::uint32_t> words = mask();
  const auto at = static_cast<std::size_t>(token);
  return token >= 0 && at / kBits < words.size() && (words[at / kBits] >> at % kBits & 1) != 0;
}

void Constraint::accept(std::int32_t token) {
  BL_CHECK(ended_ == 0);
  const auto refuse = [&] {
    fail(ErrorCode::kInvalidArgument, "token {} may not follow under the constraint", token);
  };
  const bool is_end = std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
  std::size_t kept = 0;
  if (is_end) {
    if (!complete()) refuse();
    ++ended_;
  } else if (is_free()) {
    if (token == compiled_.trigger_token) trigger_at_ = accepted_ + 1;
  } else {
    bool accepted = false;
    work([&](const WorkBudget& budget) {
      accepted = walk_->accept(token);
      kept = budget.spent() * kBytesOfStep;
    });
    if (!accepted) refuse();
    credit_ = std::min(credit_ + compiled_.limits.token_seconds, compiled_.limits.saved_seconds);
  }
  ++accepted_;
  kept_.push_back(kept);
  kept_bytes_ += kept;
  prepared_ = false;
  if (kept_bytes_ <= compiled_.limits.answer_bytes) return;
  error_ = Error(ErrorCode::kLimit,
                 fmt::format("matching the constrained answer takes more than {} MiB; a less "
                             "ambiguous grammar is needed",
                             compiled_.limits.answer_bytes >> 20));
  throw *error_;
}

void Constraint::rollback(std::int64_t tokens) {
  BL_CHECK(tokens >= 0 && tokens <= accepted_);
  std::int64_t of_walk = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    kept_bytes_ -= kept_.back();
    kept_.pop_back();
    if (ended_ > 0) {
      --ended_;
    } else if (trigger_at_ == accepted_) {
      trigger_at_.reset();
    } else if (!is_free()) {
      ++of_walk;
    }
    --accepted_;
  }
  walk_->rollback(static_cast<std::int32_t>(of_walk));
  prepared_ = prepared_ && tokens == 0;
}

bool Constraint::complete() const { return !is_free() && walk_->complete(); }

bool Constraint::finished() {
  if (ended_ > 0) return true;
  if (error_ || !complete()) return false;
  prepare();
  return !error_ && !any_text_;
}

}  // namespace bl
