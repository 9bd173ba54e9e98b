#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr std::size_t kMaxPattern = 64 << 10;
constexpr std::uint32_t kMinSteps = 10'000'000;
constexpr std::uint32_t kMaxSteps = 1'000'000'000;
constexpr std::uint32_t kStepsPerByte = 64;
constexpr std::uint32_t kHeapKiB = 512u << 10;
constexpr std::size_t kJitStackStart = 64 << 10;
constexpr std::size_t kJitStackMax = 64 << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

}  // namespace

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> compiled;
};

struct Regex::Matcher::State {
  Owned<pcre2_match_data, pcre2_match_data_free> data;
  Owned<pcre2_match_context, pcre2_match_context_free> limits;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

Regex::Regex(std::string_view pattern, std::string where)
    : code_(std::make_unique<Code>()), where_(std::move(where)) {
  if (pattern.size() > kMaxPattern) {
    fail(ErrorCode::kInvalidFile, "{}: the pattern has {} bytes, but at most {} are read", where_,
         pattern.size(), kMaxPattern);
  }
  const std::string source = translate_oniguruma(pattern, where_);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> settings(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(settings.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->compiled.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK,
      &error, &at, settings.get()));
  if (!code_->compiled) {
    fail(ErrorCode::kInvalidFile, "{}: the pattern does not compile: {} (after {} bytes of `{}`)",
         where_, message_of(error), at, source.substr(0, 200));
  }
  // Without JIT, or if the pattern is too much for it, the interpreter gives the same answers.
  pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Matcher::Matcher(const Regex& regex) : regex_(regex), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->limits.reset(pcre2_match_context_create(nullptr));
  pcre2_set_heap_limit(state_->limits.get(), kHeapKiB);
}

Regex::Matcher::~Matcher() = default;

void Regex::Matcher::reset(std::string_view subject) {
  subject_ = subject;
  from_ = 0;
  last_end_ = 0;
  had_match_ = false;
  const std::size_t steps = std::min<std::size_t>(subject.size(), kMaxSteps / kStepsPerByte);
  pcre2_set_match_limit(state_->limits.get(),
                        std::max(kMinSteps, static_cast<std::uint32_t>(steps) * kStepsPerByte));
}

bool Regex::Matcher::search() {
  const auto* code = regex_.code_->compiled.get();
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject_.data());
  const auto run = [&](std::uint32_t options) {
    return pcre2_match(code, text, subject_.size(), from_, PCRE2_NO_UTF_CHECK | options,
                       state_->data.get(), state_->limits.get());
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !state_->stack) {
    state_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
    pcre2_jit_stack_assign(state_->limits.get(), nullptr, state_->stack.get());
    result = run(0);
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    fail(ErrorCode::kLimit, "{}: matching the text ({} bytes) failed: {}", regex_.where_,
         subject_.size(), message_of(result));
  }
  return true;
}

bool Regex::Matcher::next(std::size_t& begin, std::size_t& end) {
  while (from_ <= subject_.size()) {
    if (!search()) {
      from_ = subject_.size() + 1;
      return false;
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data.get());
    begin = bounds[0];
    end = std::max(bounds[0], bounds[1]);
    // An empty match right behind the last match is skipped: the search goes on one character
    // later.
    if (begin == end && had_match_ && end == last_end_) {
      from_ += from_ < subject_.size() ? utf8_size(subject_[from_]) : 1;
      continue;
    }
    from_ = end;
    last_end_ = end;
    had_match_ = true;
    return true;
  }
  return false;
}

}  // namespace bl
