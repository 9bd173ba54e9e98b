// {python}: calls as Python writes them, f(x=1, y='a'), one after another or in a list.

#include "toolcall/call_reader.h"
#include "toolcall/json_string.h"
#include "toolcall/literal_reader.h"

namespace bl {
namespace {

constexpr std::size_t kMaxWord = 256;

bool is_python_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

// Names of tools may hold what no Python name holds, such as a hyphen.
bool is_name_byte(char byte) {
  constexpr std::string_view kNever = "()[]{}<>=,;:'\"`|\\!?*/+&%$#@~^";
  return static_cast<unsigned char>(byte) > 0x20 && kNever.find(byte) == kNever.npos;
}

class PythonReader final : public CallReader {
 public:
  explicit PythonReader(const CallReaderArgs& args)
      : format_(args.format), listed_only_(args.head.pattern().parts().empty()) {}

  Status push(char byte, CallSink& sink) override {
    if (state_ == State::kValue) return push_value(byte, sink);
    if (is_python_space(byte)) return push_space(sink);
    switch (state_) {
      case State::kStart:
        if (byte == '[') {
          in_list_ = true;
          state_ = State::kName;
          return Status::kMore;
        }
        if (listed_only_) return Status::kFailed;
        state_ = State::kName;
        return push_name(byte);
      case State::kName:
        return push_name(byte);
      case State::kFirstKey:
      case State::kKey:
        return push_key(byte, sink);
      case State::kNext:
        return push_next(byte, sink);
      default:
        return push_after(byte, sink);
    }
  }

  bool finish(CallSink& sink) override {
    if (state_ == State::kAfter) return true;
    if (!begun_) return false;
    sink.end_call();
    sink.settle();
    return true;
  }

 private:
  enum class State : std::uint8_t { kStart, kName, kFirstKey, kKey, kValue, kNext, kAfter };

  Status push_space(CallSink& sink) {
    // A name ends where white space begins, and only "(" may follow it.
    if ((state_ == State::kName || state_ == State::kKey || state_ == State::kFirstKey) &&
        !word_.empty()) {
      word_over_ = true;
    }
    if (begun_ && state_ != State::kAfter) sink.settle();
    return Status::kMore;
  }

  Status push_name(char byte) {
    if (is_name_byte(byte) && !word_over_ && word_.size() < kMaxWord) {
      word_.push_back(byte);
      return Status::kMore;
    }
    if (byte != '(' || word_.empty()) return Status::kFailed;
    name_ = call_name(format_, word_, {});
    next_word();
    state_ = State::kFirstKey;
    return Status::kMore;
  }

  Status push_key(char byte, CallSink& sink) {
    if (byte == ')' && word_.empty()) return end_call(sink);
    if (is_name_byte(byte) && !word_over_ && word_.size() < kMaxWord) {
      word_.push_back(byte);
      return Status::kMore;
    }
    if (byte != '=' || word_.empty()) {
      if (!begun_) return Status::kFailed;
      sink.add_arguments(word_);
      sink.add_arguments({&byte, 1});
      sink.settle();
      return Status::kBroken;
    }
    std::string json = begun_ ? ", " : "{";
    begin(sink);
    append_json_quoted(word_, json);
    json += ": ";
    sink.add_arguments(json);
    sink.settle();
    next_word();
    value_ = LiteralReader(LiteralReader::Dialect::kPython);
    state_ = State::kValue;
    return Status::kMore;
  }

  Status push_value(char byte, CallSink& sink) {
    std::string json;
    const LiteralReader::Status status = value_.push(byte, json);
    sink.add_arguments(json);
    if (status == LiteralReader::Status::kDoneBefore) {
      state_ = State::kNext;
      return push(byte, sink);
    }
    sink.settle();
    if (status == LiteralReader::Status::kDone) state_ = State::kNext;
    return status == LiteralReader::Status::kError ? Status::kBroken : Status::kMore;
  }

  Status push_next(char byte, CallSink& sink) {
    if (byte == ')') return end_call(sink);
    if (byte != ',') {
      sink.add_arguments({&byte, 1});
      sink.settle();
      return Status::kBroken;
    }
    sink.settle();
    state_ = State::kKey;
    return Status::kMore;
  }

  Status push_after(char byte, CallSink& sink) {
    if (in_list_ && byte == ']') {
      sink.settle();
      return Status::kEnd;
    }
    if (byte == ',' && in_list_) {
      sink.settle();
      next_call();
      return Status::kMore;
    }
    if (in_list_ || !is_name_byte(byte)) return Status::kEndBefore;
    next_call();
    return push_name(byte);
  }

  Status end_call(CallSink& sink) {
    begin(sink);
    sink.add_arguments(arguments_begun_ ? "}" : "{}");
    sink.end_call();
    sink.settle();
    state_ = State::kAfter;
    return Status::kMore;
  }

  void begin(CallSink& sink) {
    if (!begun_) {
      sink.begin_call(name_.name, name_.id);
      arguments_begun_ = state_ != State::kFirstKey || !word_.empty();
    }
    begun_ = true;
  }

  void next_word() {
    word_.clear();
    word_over_ = false;
  }

  void next_call() {
    next_word();
    begun_ = arguments_begun_ = false;
    state_ = State::kName;
  }

  const AnswerFormat& format_;
  const bool listed_only_;  // without a marker in front, only a list is a call
  State state_ = State::kStart;
  bool in_list_ = false;
  bool begun_ = false;
  bool arguments_begun_ = false;  // the call's first argument has come
  bool word_over_ = false;        // white space followed the word
  std::string word_;
  CallName name_;
  LiteralReader value_{LiteralReader::Dialect::kPython};
};

}  // namespace

std::unique_ptr<CallReader> make_python_reader(const CallReaderArgs& args) {
  return std::make_unique<PythonReader>(args);
}

}  // namespace bl
