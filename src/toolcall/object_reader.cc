// {object}: {"name": …, "arguments": …}, one after another or in a list.

#include <algorithm>

#include "toolcall/arguments_value.h"
#include "toolcall/call_reader.h"
#include "toolcall/json_scanner.h"
#include "toolcall/json_string.h"

namespace bl {
namespace {

constexpr std::size_t kMaxKey = 256;

bool is_object_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class ObjectReader final : public CallReader {
 public:
  explicit ObjectReader(const CallReaderArgs& args)
      : format_(args.format), tools_(args.tools), marked_(!args.head.pattern().parts().empty()) {}

  Status push(char byte, CallSink& sink) override {
    if (!inside_value() && is_object_space(byte)) {
      if (call_ended_ && state_ != State::kNextObject) sink.settle();
      return Status::kMore;
    }
    const Status status = step(byte, sink);
    if (status == Status::kMore && call_ended_ && state_ != State::kNextObject) sink.settle();
    // What follows a call that is whole is no part of it, even where the object goes wrong.
    if (status == Status::kFailed && call_ended_) return Status::kEndBefore;
    return status;
  }

  bool finish(CallSink& sink) override {
    if (begun_ && !call_ended_) {
      sink.end_call();
      sink.settle();
      return true;
    }
    return call_ended_ && state_ != State::kSeparated;
  }

 private:
  enum class State : std::uint8_t {
    kStart,   // before the first object
    kObject,  // in a list, before an object
    kFirstKey,
    kKey,      // inside a key
    kNextKey,  // after a comma
    kColon,
    kValue,  // before a value
    kText,   // inside the name or the id
    kOther,  // inside a value that means nothing here
    kArguments,
    kNext,        // after a value
    kNextObject,  // after an object
    kSeparated,   // after a comma or semicolon between objects without a list
  };
  enum class Meaning : std::uint8_t { kName, kId, kArguments, kOther };

  bool inside_value() const {
    return state_ == State::kKey || state_ == State::kText || state_ == State::kOther ||
           state_ == State::kArguments;
  }

  Status step(char byte, CallSink& sink);
  Status start(char byte);
  Status next_object(char byte, CallSink& sink);
  Status push_key(char byte, CallSink& sink);
  Status end_key(CallSink& sink);
  Status begin_value(char byte, CallSink& sink);
  Status push_text(char byte);
  Status push_other(char byte, CallSink& sink);
  Status push_arguments(char byte, CallSink& sink);
  Status end_object(CallSink& sink);
  void begin_call(CallSink& sink);
  void whole_call(std::string_view arguments, CallSink& sink);
  void reset_object();

  const AnswerFormat& format_;
  const ToolSet& tools_;
  const bool marked_;  // text of the format stands before the object
  State state_ = State::kStart;
  Meaning meaning_ = Meaning::kOther;
  bool in_list_ = false;
  bool call_ended_ = false;  // the call of this object has been passed on whole

  // The object being read.
  bool begun_ = false;  // its call has begun
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool has_other_ = false;  // a key that calls do not have
  std::string key_, text_, name_, id_;
  std::string kept_;  // arguments that came before the name
  JsonStringReader string_;
  JsonScanner scanner_;
  ArgumentsValue arguments_;
};

CallReader::Status ObjectReader::step(char byte, CallSink& sink) {
  switch (state_) {
    case State::kStart:
    case State::kObject:
      return start(byte);
    case State::kFirstKey:
      if (byte == '}') return end_object(sink);
      [[fallthrough]];
    case State::kNextKey:
      if (byte != '"') return Status::kFailed;
      key_.clear();
      string_ = {};
      state_ = State::kKey;
      return Status::kMore;
    case State::kKey:
      return push_key(byte, sink);
    case State::kColon:
      if (byte != ':') return Status::kFailed;
      state_ = State::kValue;
      return Status::kMore;
    case State::kValue:
      return begin_value(byte, sink);
    case State::kText:
      return push_text(byte);
    case State::kOther:
      return push_other(byte, sink);
    case State::kArguments:
      return push_arguments(byte, sink);
    case State::kNext:
      if (byte == '}') return end_object(sink);
      if (byte != ',') return Status::kFailed;
      state_ = State::kNextKey;
      return Status::kMore;
    case State::kNextObject:
    case State::kSeparated:
      return next_object(byte, sink);
  }
  return Status::kFailed;
}

CallReader::Status ObjectReader::start(char byte) {
  if (byte == '[' && state_ == State::kStart) {
    in_list_ = true;
    state_ = State::kObject;
    return Status::kMore;
  }
  if (byte != '{') return Status::kFailed;
  state_ = State::kFirstKey;
  return Status::kMore;
}

CallReader::Status ObjectReader::next_object(char byte, CallSink& sink) {
  if (byte == '{' && !(in_list_ && state_ == State::kNextObject)) {
    reset_object();
    state_ = State::kFirstKey;
    return Status::kMore;
  }
  if (in_list_ && state_ == State::kNextObject) {
    if (byte == ']') {
      sink.settle();
      return Status::kEnd;
    }
    if (byte != ',') return Status::kEndBefore;
    reset_object();
    sink.settle();
    state_ = State::kObject;
    return Status::kMore;
  }
  if (state_ == State::kSeparated || (byte != ',' && byte != ';')) return Status::kEndBefore;
  state_ = State::kSeparated;
  return Status::kMore;
}

CallReader::Status ObjectReader::push_key(char byte, CallSink& sink) {
  switch (string_.push(byte, key_)) {
    case JsonStringReader::Status::kMore:
      return key_.size() <= kMaxKey ? Status::kMore : Status::kFailed;
    case JsonStringReader::Status::kDone:
      return end_key(sink);
    case JsonStringReader::Status::kError:
      break;
  }
  return Status::kFailed;
}

CallReader::Status ObjectReader::end_key(CallSink&) {
  state_ = State::kColon;
  const ObjectKeys& keys = format_.keys;
  meaning_ = Meaning::kOther;
  if (keys.key_is_name) {
    if (has_name_) return Status::kFailed;
    name_ = key_;
    has_name_ = true;
    meaning_ = Meaning::kArguments;
  } else if (holds(keys.name, key_) && !has_name_) {
    meaning_ = Meaning::kName;
  } else if (holds(keys.arguments, key_) && !has_arguments_) {
    meaning_ = Meaning::kArguments;
  } else if (holds(keys.id, key_)) {
    meaning_ = Meaning::kId;
  } else if (key_ != "type" && key_ != "index") {
    has_other_ = true;
    // Without a marker in front, an object with keys of its own is data, not a call.
    if (!marked_ && !has_arguments_) return Status::kFailed;
  }
  return Status::kMore;
}

CallReader::Status ObjectReader::begin_value(char byte, CallSink& sink) {
  text_.clear();
  string_ = {};
  if (meaning_ == Meaning::kName || (meaning_ == Meaning::kId && byte == '"')) {
    if (byte != '"') return Status::kFailed;
    state_ = State::kText;
    return Status::kMore;
  }
  if (meaning_ == Meaning::kArguments && ArgumentsValue::may_begin(byte)) {
    has_arguments_ = true;
    arguments_ = {};
    state_ = State::kArguments;
    if (has_name_) begin_call(sink);
    return push_arguments(byte, sink);
  }
  if (meaning_ == Meaning::kArguments && byte != 'n') return Status::kFailed;  // null: none
  scanner_.reset();
  state_ = State::kOther;
  return push_other(byte, sink);
}

CallReader::Status ObjectReader::push_text(char byte) {
  switch (string_.push(byte, text_)) {
    case JsonStringReader::Status::kMore:
      return text_.size() <= kMaxKey ? Status::kMore : Status::kFailed;
    case JsonStringReader::Status::kError:
      return Status::kFailed;
    case JsonStringReader::Status::kDone:
      break;
  }
  if (meaning_ == Meaning::kName) {
    if (text_.empty()) return Status::kFailed;
    name_ = text_;
    has_name_ = true;
  } else {
    id_ = text_;
  }
  state_ = State::kNext;
  return Status::kMore;
}

CallReader::Status ObjectReader::push_other(char byte, CallSink& sink) {
  switch (scanner_.push(byte)) {
    case JsonScanner::Status::kMore:
      return Status::kMore;
    case JsonScanner::Status::kDone:
      state_ = State::kNext;
      return Status::kMore;
    case JsonScanner::Status::kDoneBefore:
      state_ = State::kNext;
      return is_object_space(byte) ? Status::kMore : step(byte, sink);
    case JsonScanner::Status::kError:
      break;
  }
  return Status::kFailed;
}

CallReader::Status ObjectReader::push_arguments(char byte, CallSink& sink) {
  std::string json;
  const ArgumentsValue::Status status = arguments_.push(byte, json);
  if (!begun_) {
    kept_ += json;
    if (status == ArgumentsValue::Status::kBroken) return Status::kFailed;
  } else {
    sink.add_arguments(json);
    sink.settle();
    if (status == ArgumentsValue::Status::kBroken) return Status::kBroken;
  }
  if (status == ArgumentsValue::Status::kMore) return Status::kMore;
  state_ = State::kNext;
  if (begun_) {
    sink.end_call();
    call_ended_ = true;
  }
  return Status::kMore;
}

CallReader::Status ObjectReader::end_object(CallSink& sink) {
  if (!call_ended_) {
    if (!has_name_) return Status::kFailed;
    if (has_arguments_) {
      whole_call(kept_, sink);
    } else if (!has_other_ && (marked_ || tools_.offers(name_))) {
      whole_call("{}", sink);
    } else {
      return Status::kFailed;
    }
  }
  sink.settle();
  state_ = State::kNextObject;
  return Status::kMore;
}

void ObjectReader::begin_call(CallSink& sink) {
  const CallName name = call_name(format_, name_, id_);
  sink.begin_call(name.name, name.id);
  begun_ = true;
}

void ObjectReader::whole_call(std::string_view arguments, CallSink& sink) {
  begin_call(sink);
  sink.add_arguments(arguments);
  sink.end_call();
  call_ended_ = true;
}

void ObjectReader::reset_object() {
  begun_ = has_name_ = has_arguments_ = has_other_ = call_ended_ = false;
  name_.clear();
  id_.clear();
  kept_.clear();
}

}  // namespace

std::unique_ptr<CallReader> make_object_reader(const CallReaderArgs& args) {
  return std::make_unique<ObjectReader>(args);
}

}  // namespace bl
