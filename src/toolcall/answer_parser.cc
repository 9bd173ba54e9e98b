#include "toolcall/answer_parser.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "toolcall/call_reader.h"
#include "toolcall/json_scanner.h"

namespace bl {
namespace {

// A beginning that comes to nothing is read again from its second byte. One that was held longer
// than this is content as a whole, so that time stays linear.
constexpr std::size_t kMaxReadAgain = 4096;
constexpr std::size_t kKeptInput = 1 << 16;

bool is_answer_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace

// Takes the text byte by byte, so that cuts cannot matter.
class AnswerParser::Machine final : public CallSink {
 public:
  Machine(const AnswerFormat& format, const ToolSet& tools, AnswerOptions options);

  std::vector<AnswerEvent> feed(std::string_view text);
  std::vector<AnswerEvent> finish();

  void begin_call(std::string_view name, std::string_view id) override;
  void add_arguments(std::string_view json) override;
  void end_call() override;
  void settle() override { begin_ = at_ + 1; }
  void settle_first(std::size_t bytes) override {
    begin_ += bytes;
    at_ = begin_ - 1;
  }

 private:
  enum class Mode : std::uint8_t {
    kContent,
    kReasoning,
    kAfterCall,
    kInCall,  // `reader_` reads
    kRaw,     // in a call whose arguments are no JSON: up to a closing marker all of it is kept
  };
  enum class Action : std::uint8_t { kOpenReasoning, kCloseReasoning, kDrop, kCall };

  // Something that what has come since begin_ may turn out to be.
  struct Candidate {
    Action action;
    PatternMatch match;
    std::unique_ptr<CallReader> reader;  // once the pattern's form has begun
  };

  void run();
  void push(char byte);
  void start_candidates(char byte);
  void start_calls(char byte);
  void start_all(const std::vector<Pattern>& patterns, Action action, char byte);
  void push_candidates(char byte);
  bool push_candidate(Candidate& candidate, char byte);
  void take(Candidate& winner, CallReader::Status status);
  void open_reasoning();
  void close_reasoning();
  void push_reader(char byte);
  void after_reader(CallReader::Status status);
  void give_up();
  void plain(char byte);
  void plain_space(char byte);
  void add_content(std::string_view text);
  void add_reasoning(std::string_view text);
  void emit(AnswerEvent::Kind kind, std::string_view text);
  bool finish_candidates();
  void finish_text();
  // What the winning candidate has matched, the current byte included.
  std::string_view matched() const {
    return std::string_view(input_).substr(begin_, at_ + 1 - begin_);
  }

  const AnswerFormat& format_;
  const ToolSet& tools_;
  const AnswerOptions options_;
  std::vector<AnswerEvent> events_;

  std::string bytes_;       // an incomplete character at the end of the input
  std::string input_;       // text from before begin_ on
  std::size_t begin_ = 0;   // everything before it is dealt with
  std::size_t at_ = 0;      // the next byte to read
  std::size_t unseen_ = 0;  // bytes of the prompt at the front of the input, which are no answer

  Mode mode_ = Mode::kContent;
  std::vector<Candidate> candidates_;
  std::unique_ptr<CallReader> reader_;
  bool began_ = false;  // the candidate that reads has begun a call
  int calls_ = 0;
  WholeJson arguments_;   // those of the last call
  std::string space_;     // white space that is passed on if text follows it
  bool at_start_ = true;  // nothing but white space and reasoning has come
  bool had_reasoning_ = false;
  bool wrote_content_ = false;
  bool wrote_reasoning_ = false;
  bool drop_space_ = false;  // white space here belongs to a marker
};

AnswerParser::Machine::Machine(const AnswerFormat& format, const ToolSet& tools,
                               AnswerOptions options)
    : format_(format), tools_(tools), options_(std::move(options)) {
  if (options_.start.in_reasoning) {
    mode_ = Mode::kReasoning;
    had_reasoning_ = true;
  }
  input_ = options_.start.prompt;
  unseen_ = input_.size();
  run();
}

std::vector<AnswerEvent> AnswerParser::Machine::feed(std::string_view text) {
  bytes_ += text;
  bytes_.erase(0, decode_lossy(bytes_, false, input_));
  run();
  return std::exchange(events_, {});
}

std::vector<AnswerEvent> AnswerParser::Machine::finish() {
  decode_lossy(bytes_, true, input_);
  bytes_.clear();
  run();
  for (;;) {
    if (mode_ == Mode::kInCall) {
      if (!reader_->finish(*this)) {
        reader_.reset();
        give_up();
        run();
        continue;
      }
      reader_.reset();
      mode_ = Mode::kAfterCall;
      break;
    }
    if (candidates_.empty() || finish_candidates()) break;
    give_up();
    run();
  }
  finish_text();
  return std::exchange(events_, {});
}

void AnswerParser::Machine::run() {
  while (at_ < input_.size()) {
    push(input_[at_]);
    ++at_;
  }
  if (begin_ > kKeptInput && begin_ > input_.size() / 2) {
    input_.erase(0, begin_);
    at_ -= begin_;
    begin_ = 0;
  }
}

void AnswerParser::Machine::push(char byte) {
  if (mode_ == Mode::kInCall) return push_reader(byte);
  if (candidates_.empty()) {
    start_candidates(byte);
    if (candidates_.empty()) {
      plain(byte);
      settle();
      return;
    }
  }
  push_candidates(byte);
}

void AnswerParser::Machine::start_candidates(char byte) {
  const bool space = is_answer_space(byte);
  if (mode_ == Mode::kReasoning) {
    start_all(format_.reasoning.close, Action::kCloseReasoning, byte);
    // Some models repeat the marker that the prompt ended with.
    if (!wrote_reasoning_) start_all(format_.reasoning.open, Action::kDrop, byte);
    if (format_.reasoning.ended_by_calls && options_.separate_reasoning) start_calls(byte);
    return;
  }
  if (mode_ == Mode::kRaw) {
    // A lone bracket closes no call whose arguments are raw.
    for (const Pattern& pattern : format_.close) {
      if (pattern.first() != byte || pattern.opening().size() < 2) continue;
      candidates_.push_back({Action::kDrop, PatternMatch(pattern), nullptr});
    }
  } else {
    const bool reasoning_may_begin =
        format_.reasoning.anywhere || (at_start_ && !had_reasoning_ && !space);
    if (reasoning_may_begin) {
      start_all(format_.reasoning.open, Action::kOpenReasoning, byte);
    }
    if (at_start_ && !format_.reasoning.anywhere) {
      start_all(format_.reasoning.close, Action::kDrop, byte);
    }
    start_all(format_.drop, Action::kDrop, byte);
    if (mode_ == Mode::kAfterCall) start_all(format_.close, Action::kDrop, byte);
  }
  start_calls(byte);
}

void AnswerParser::Machine::start_calls(char byte) {
  if (!options_.read_calls || tools_.empty()) return;
  for (const Pattern& pattern : format_.calls) {
    const bool bare = pattern.parts().empty();
    const bool may_begin = bare ? at_start_ && !is_answer_space(byte) && mode_ == Mode::kContent
                                : pattern.first() == byte;
    if (may_begin) candidates_.push_back({Action::kCall, PatternMatch(pattern), nullptr});
  }
}

void AnswerParser::Machine::start_all(const std::vector<Pattern>& patterns, Action action,
                                      char byte) {
  for (const Pattern& pattern : patterns) {
    if (pattern.first() == byte) candidates_.push_back({action, PatternMatch(pattern), nullptr});
  }
}

void AnswerParser::Machine::push_candidates(char byte) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (push_candidate(candidates_[i], byte)) {
      if (kept != i) candidates_[kept] = std::move(candidates_[i]);
      ++kept;
    } else if (candidates_.empty()) {
      return;  // one of them has won
    }
  }
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end());
  if (candidates_.empty()) {
    ++at_;
    give_up();
    --at_;
  }
}

// Returns whether the candidate is still one. A winner empties the list.
bool AnswerParser::Machine::push_candidate(Candidate& candidate, char byte) {
  if (!candidate.reader) {
    switch (candidate.match.push(byte)) {
      case PatternMatch::Status::kMore:
        return true;
      case PatternMatch::Status::kFailed:
        return false;
      case PatternMatch::Status::kMatched:
        take(candidate, CallReader::Status::kMore);
        return false;
      case PatternMatch::Status::kForm:
        candidate.reader = make_call_reader({format_, tools_, candidate.match});
        break;
    }
  }
  began_ = false;
  const CallReader::Status status = candidate.reader->push(byte, *this);
  if (began_) {
    take(candidate, status);
    return false;
  }
  return status == CallReader::Status::kMore;
}

void AnswerParser::Machine::take(Candidate& winner, CallReader::Status status) {
  Candidate taken = std::move(winner);
  candidates_.clear();
  unseen_ = 0;
  switch (taken.action) {
    case Action::kCall:
      reader_ = std::move(taken.reader);
      mode_ = Mode::kInCall;
      after_reader(status);
      return;
    case Action::kOpenReasoning:
      open_reasoning();
      break;
    case Action::kCloseReasoning:
      close_reasoning();
      break;
    case Action::kDrop:
      if (mode_ == Mode::kRaw) {
        end_call();
        mode_ = Mode::kAfterCall;
      } else if (mode_ == Mode::kReasoning && !options_.separate_reasoning) {
        emit(AnswerEvent::Kind::kContent, matched());
      } else if (mode_ == Mode::kContent) {
        drop_space_ = !wrote_content_;
      }
      break;
  }
  settle();
}

void AnswerParser::Machine::open_reasoning() {
  if (!options_.separate_reasoning) add_content(matched());
  mode_ = Mode::kReasoning;
  had_reasoning_ = true;
  if (options_.separate_reasoning && !wrote_content_) space_.clear();
}

void AnswerParser::Machine::close_reasoning() {
  if (options_.separate_reasoning) {
    space_.clear();
    drop_space_ = !wrote_content_;
  } else {
    emit(AnswerEvent::Kind::kContent, matched());
  }
  mode_ = Mode::kContent;
}

void AnswerParser::Machine::push_reader(char byte) { after_reader(reader_->push(byte, *this)); }

void AnswerParser::Machine::after_reader(CallReader::Status status) {
  switch (status) {
    case CallReader::Status::kMore:
      return;
    case CallReader::Status::kEnd:
      mode_ = Mode::kAfterCall;
      settle();
      break;
    case CallReader::Status::kEndBefore:
      mode_ = Mode::kAfterCall;
      settle_first(0);
      break;
    case CallReader::Status::kBroken:
      mode_ = Mode::kRaw;
      settle();
      break;
    case CallReader::Status::kFailed:
      ++at_;
      give_up();
      --at_;
      break;
  }
  reader_.reset();
}

// The held text is nothing special: passes on its first byte as plain text and reads on behind it.
void AnswerParser::Machine::give_up() {
  candidates_.clear();
  if (mode_ == Mode::kInCall) mode_ = Mode::kContent;
  const std::size_t count = at_ - begin_ > kMaxReadAgain ? at_ - begin_ : 1;
  for (std::size_t i = 0; i < count && begin_ < at_; ++i) plain(input_[begin_++]);
  at_ = begin_;
}

void AnswerParser::Machine::plain(char byte) {
  if (unseen_ > 0) {
    --unseen_;
    return;
  }
  if (mode_ == Mode::kRaw) return emit(AnswerEvent::Kind::kArguments, {&byte, 1});
  const bool reasoning = mode_ == Mode::kReasoning;
  if (reasoning && !options_.separate_reasoning) {
    return emit(AnswerEvent::Kind::kContent, {&byte, 1});
  }
  if (is_answer_space(byte)) return plain_space(byte);
  if (reasoning) return add_reasoning({&byte, 1});
  at_start_ = false;
  mode_ = Mode::kContent;
  add_content({&byte, 1});
}

void AnswerParser::Machine::plain_space(char byte) {
  if (mode_ == Mode::kReasoning && !wrote_reasoning_) return;
  space_.push_back(byte);
}

void AnswerParser::Machine::add_content(std::string_view text) {
  if (drop_space_) space_.clear();
  drop_space_ = false;
  emit(AnswerEvent::Kind::kContent, space_);
  space_.clear();
  emit(AnswerEvent::Kind::kContent, text);
  wrote_content_ = true;
}

void AnswerParser::Machine::add_reasoning(std::string_view text) {
  emit(AnswerEvent::Kind::kReasoning, space_);
  space_.clear();
  emit(AnswerEvent::Kind::kReasoning, text);
  wrote_reasoning_ = true;
}

void AnswerParser::Machine::emit(AnswerEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool is_arguments = kind == AnswerEvent::Kind::kArguments;
  if (is_arguments) arguments_.push(text);
  const int call = is_arguments ? calls_ - 1 : 0;
  if (events_.empty() || events_.back().kind != kind || events_.back().call != call) {
    events_.push_back({.kind = kind, .call = call});
  }
  events_.back().text += text;
}

void AnswerParser::Machine::begin_call(std::string_view name, std::string_view id) {
  if (mode_ == Mode::kRaw) {
    end_call();
    mode_ = Mode::kAfterCall;
  }
  began_ = true;
  arguments_ = {};
  at_start_ = false;
  unseen_ = 0;
  if (!wrote_content_) space_.clear();
  drop_space_ = !wrote_content_;
  events_.push_back({.kind = AnswerEvent::Kind::kCallBegin,
                     .call = calls_++,
                     .name = std::string(name),
                     .id = std::string(id)});
}

void AnswerParser::Machine::add_arguments(std::string_view json) {
  emit(AnswerEvent::Kind::kArguments, json);
}

// A client can use arguments that are whole, though the marks around them may be damaged.
void AnswerParser::Machine::end_call() {
  events_.push_back(
      {.kind = AnswerEvent::Kind::kCallEnd, .call = calls_ - 1, .complete = arguments_.is_whole()});
}

// At the end of the text: whether what is held may stand as it is.
bool AnswerParser::Machine::finish_candidates() {
  bool only_closing = mode_ == Mode::kAfterCall;
  for (Candidate& candidate : candidates_) {
    only_closing = only_closing && candidate.action == Action::kDrop;
    if (candidate.action != Action::kCall) continue;
    if (candidate.reader) {
      began_ = false;
      if (candidate.reader->finish(*this)) return true;
    }
    const CallName name = call_name(format_, candidate.match.name(), candidate.match.id());
    if (name.name.empty() || !tools_.needs_nothing(name.name)) continue;
    begin_call(name.name, name.id);
    add_arguments("{}");
    end_call();
    return true;
  }
  return only_closing;
}

void AnswerParser::Machine::finish_text() {
  candidates_.clear();
  if (mode_ == Mode::kRaw) end_call();
  if (mode_ == Mode::kContent && !drop_space_) emit(AnswerEvent::Kind::kContent, space_);
  space_.clear();
}

AnswerParser::AnswerParser(const AnswerFormat& format, const ToolSet& tools, AnswerOptions options)
    : machine_(std::make_unique<Machine>(format, tools, std::move(options))) {}
AnswerParser::AnswerParser(AnswerParser&& other) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&& other) noexcept = default;
AnswerParser::~AnswerParser() = default;

std::vector<AnswerEvent> AnswerParser::feed(std::string_view text) { return machine_->feed(text); }
std::vector<AnswerEvent> AnswerParser::finish() { return machine_->finish(); }

}  // namespace bl
