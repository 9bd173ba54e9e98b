// {arguments}: the arguments of a call whose name stood in the pattern, as JSON.

#include <vector>

#include "toolcall/arguments_value.h"
#include "toolcall/call_reader.h"

namespace bl {
namespace {

class ArgumentsReader final : public CallReader {
 public:
  explicit ArgumentsReader(const CallReaderArgs& args)
      : format_(args.format), name_(call_name(args.format, args.head.name(), args.head.id())) {}

  Status push(char byte, CallSink& sink) override {
    if (begun_) return push_arguments(byte, sink);
    if (closing_.empty() && ArgumentsValue::may_begin(byte)) {
      sink.begin_call(name_.name, name_.id);
      begun_ = true;
      return push_arguments(byte, sink);
    }
    return push_closing(byte, sink);
  }

  bool finish(CallSink& sink) override {
    if (!begun_) return false;
    sink.end_call();
    sink.settle();
    return true;
  }

 private:
  Status push_arguments(char byte, CallSink& sink) {
    std::string json;
    const ArgumentsValue::Status status = value_.push(byte, json);
    sink.add_arguments(json);
    sink.settle();
    if (status == ArgumentsValue::Status::kMore) return Status::kMore;
    if (status == ArgumentsValue::Status::kBroken) return Status::kBroken;
    sink.end_call();
    return Status::kEnd;
  }

  // Where a marker that closes calls stands in place of the arguments, there are none.
  Status push_closing(char byte, CallSink& sink) {
    if (closing_.empty()) {
      for (const Pattern& pattern : format_.close) closing_.emplace_back(pattern);
    }
    std::vector<PatternMatch> alive;
    for (PatternMatch& match : closing_) {
      const PatternMatch::Status status = match.push(byte);
      if (status == PatternMatch::Status::kMore) alive.push_back(match);
      if (status != PatternMatch::Status::kMatched) continue;
      sink.begin_call(name_.name, name_.id);
      sink.add_arguments("{}");
      sink.end_call();
      sink.settle();
      return Status::kEnd;
    }
    closing_ = std::move(alive);
    return closing_.empty() ? Status::kFailed : Status::kMore;
  }

  const AnswerFormat& format_;
  const CallName name_;
  bool begun_ = false;
  ArgumentsValue value_;
  std::vector<PatternMatch> closing_;
};

}  // namespace

std::unique_ptr<CallReader> make_arguments_reader(const CallReaderArgs& args) {
  return std::make_unique<ArgumentsReader>(args);
}

}  // namespace bl
