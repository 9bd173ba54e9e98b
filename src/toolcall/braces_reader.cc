// {braces}: the arguments of a call as {key:value}, with bare keys.

#include "toolcall/call_reader.h"
#include "toolcall/literal_reader.h"

namespace bl {
namespace {

class BracesReader final : public CallReader {
 public:
  explicit BracesReader(const CallReaderArgs& args)
      : name_(call_name(args.format, args.head.name(), args.head.id())),
        value_(LiteralReader::Dialect::kBraces, args.format.string_delimiter) {}

  Status push(char byte, CallSink& sink) override {
    if (!begun_) {
      if (byte != '{') return Status::kFailed;
      sink.begin_call(name_.name, name_.id);
      begun_ = true;
    }
    std::string json;
    const LiteralReader::Status status = value_.push(byte, json);
    sink.add_arguments(json);
    sink.settle();
    if (status == LiteralReader::Status::kMore) return Status::kMore;
    if (status == LiteralReader::Status::kError) return Status::kBroken;
    sink.end_call();
    return Status::kEnd;
  }

  bool finish(CallSink& sink) override {
    if (begun_) {
      sink.end_call();
      sink.settle();
    }
    return begun_;
  }

 private:
  const CallName name_;
  LiteralReader value_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_braces_reader(const CallReaderArgs& args) {
  return std::make_unique<BracesReader>(args);
}

}  // namespace bl
