#include "sample/constraint.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

constexpr const char* kWhat = "a token of the constrained answer";
constexpr std::size_t kBits = 32;
// An estimate of the bytes that xgrammar keeps for each small step of accepting a token: a parser
// state (ParserState is 40 bytes) and its share of the tables.
constexpr std::size_t kBytesOfStep = 16;

// Made in advance, while there is memory; copies share its text.
const Error kNoMemory(ErrorCode::kOutOfMemory, "out of memory while constraining an answer");

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
  work([&](const WorkBudget&) {
    for (const CompiledConstraint::Part& part : compiled_.parts) {
      parts_.push_back({.walk = part.grammar->start(), .trigger_token = part.trigger_token});
    }
  });
  std::sort(end_tokens_.begin(), end_tokens_.end());
  std::size_t tokens = compiled_.vocab;
  for (const std::int32_t end : end_tokens_) {
    BL_CHECK(end >= 0);
    tokens = std::max(tokens, static_cast<std::size_t>(end) + 1);
  }
  words_.assign((tokens + kBits - 1) / kBits, 0);
  if (!compiled_.prefer_end) return;
  end_words_ = words_;
  for (const std::int32_t end : end_tokens_) set_bit(end_words_, end, true);
}

// Runs `body` within the budget. If it throws, the constraint becomes unusable.
template <class F>
void Constraint::work(const F& body) {
  if (error_) throw *error_;
  const WorkBudget budget(kWhat, credit_, compiled_.limits.answer_bytes);
  try {
    body(budget);
  } catch (const Error& error) {
    error_ = error;
    throw;
  } catch (const std::bad_alloc&) {
    error_ = kNoMemory;
    throw *error_;
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
  fill_text();
  set_ends(false);
  any_text_ = std::any_of(words_.begin(), words_.end(), [](std::uint32_t w) { return w != 0; });
  set_ends(complete());
}

// If the request has no end tokens, the answer is over once it is complete and has at least one
// token.
bool Constraint::prefers_end() const {
  return compiled_.prefer_end && complete() && (accepted_ > 0 || !end_tokens_.empty());
}

// Fills words_ with the tokens that all parts accept.
void Constraint::fill_text() {
  std::fill(words_.begin(), words_.end(), ~std::uint32_t{0});
  const std::size_t own = (compiled_.vocab + kBits - 1) / kBits;
  bool first = true;
  for (const Part& part : parts_) {
    if (part.is_free()) continue;
    const std::span<std::uint32_t> all = std::span(words_).first(own);
    if (std::exchange(first, false)) {
      work([&](const WorkBudget&) { part.walk->fill(all); });
      std::fill(words_.begin() + static_cast<std::ptrdiff_t>(own), words_.end(), 0);
      continue;
    }
    work([&](const WorkBudget&) {
      part_words_.resize(own);
      part.walk->fill(part_words_);
    });
    for (std::size_t i = 0; i < own; ++i) all[i] &= part_words_[i];
  }
}

void Constraint::set_ends(bool allowed) {
  for (const std::int32_t end : end_tokens_) set_bit(words_, end, allowed);
}

std::span<const std::uint32_t> Constraint::mask(bool ends_come) {
  BL_CHECK(ended_ == 0);
  prepare();
  if (error_) throw *error_;
  if (!any_text_ && !complete()) {
    fail(ErrorCode::kInvalidArgument,
         "the constraint{} cannot be satisfied{}: the text so far is incomplete, and no token of "
         "this vocabulary may follow it",
         parts_.size() > 1 ? "s" : "", parts_.size() > 1 ? " together" : "");
  }
  return ends_come && prefers_end() ? end_words_ : words_;
}

bool Constraint::allows(std::int32_t token) {
  const std::span<const std::uint32_t> words = mask();
  const auto at = static_cast<std::size_t>(token);
  return token >= 0 && at / kBits < words.size() && (words[at / kBits] >> at % kBits & 1) != 0;
}

// Returns whether every part accepts the token; if one refuses, all parts stay as they were.
bool Constraint::accept_text(std::int32_t token) {
  std::size_t done = 0;
  while (done < parts_.size() && (parts_[done].is_free() || parts_[done].walk->accept(token))) {
    ++done;
  }
  if (done == parts_.size()) return true;
  for (std::size_t i = 0; i < done; ++i) {
    if (!parts_[i].is_free()) parts_[i].walk->rollback(1);
  }
  return false;
}

void Constraint::accept(std::int32_t token) {
  BL_CHECK(ended_ == 0);
  const auto refuse = [&] {
    fail(ErrorCode::kInvalidArgument, "the constraint does not allow token {} here", token);
  };
  const bool is_end = std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
  std::size_t kept = 0;
  if (is_end) {
    if (!complete()) refuse();
    ++ended_;
  } else {
    bool accepted = false;
    work([&](const WorkBudget& budget) {
      accepted = accept_text(token);
      kept = budget.spent() * kBytesOfStep;
    });
    if (!accepted) refuse();
    credit_ = std::min(credit_ + compiled_.limits.token_seconds, compiled_.limits.saved_seconds);
    for (Part& part : parts_) {
      if (part.is_free() && token == part.trigger_token) part.trigger_at = accepted_ + 1;
    }
  }
  ++accepted_;
  kept_.push_back(kept);
  kept_bytes_ += kept;
  prepared_ = false;
  if (kept_bytes_ <= compiled_.limits.answer_bytes) return;
  error_ = Error(
      ErrorCode::kLimit,
      fmt::format(
          "matching the constrained answer takes more than {} MiB; use a less ambiguous grammar",
          compiled_.limits.answer_bytes >> 20));
  throw *error_;
}

void Constraint::rollback(std::int64_t tokens) {
  BL_CHECK(tokens >= 0 && tokens <= accepted_);
  const std::int64_t before = accepted_ - ended_;  // the grammars do not see end tokens
  ended_ -= std::min(ended_, tokens);
  accepted_ -= tokens;
  for (; kept_.size() > static_cast<std::size_t>(accepted_); kept_.pop_back()) {
    kept_bytes_ -= kept_.back();
  }
  const std::int64_t after = accepted_ - ended_;
  for (Part& part : parts_) {
    if (part.is_free()) continue;
    const std::int64_t begin = part.trigger_at.value_or(0);
    part.walk->rollback(static_cast<std::int32_t>(before - std::max(after, begin)));
    if (begin > after) part.trigger_at.reset();
  }
  prepared_ = prepared_ && tokens == 0;
}

bool Constraint::complete() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return !part.is_free() && part.walk->complete(); });
}

bool Constraint::finished(bool ends_come) {
  if (ended_ > 0) return true;
  if (error_ || !complete()) return false;
  prepare();
  return !error_ && (!any_text_ || (ends_come && prefers_end()));
}

}  // namespace bl
