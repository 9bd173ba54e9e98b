// {parameters}: parameters one by one, each with its name in a tag and a bare value behind it.

#include <map>
#include <optional>
#include <vector>

#include "toolcall/call_reader.h"
#include "toolcall/json_string.h"
#include "toolcall/parameter_value.h"

namespace bl {
namespace {

bool is_parameter_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

class ParametersReader final : public CallReader {
 public:
  explicit ParametersReader(const CallReaderArgs& args)
      : format_(args.format),
        tools_(args.tools),
        name_(call_name(args.format, args.head.name(), args.head.id())) {
    for (const ParameterSyntax& parameter : format_.parameters) {
      closing_tags_.emplace_back(parameter.close);
    }
  }

  Status push(char byte, CallSink& sink) override {
    if (value_) return push_value(byte, sink);
    if (tags_.empty()) {
      if (is_parameter_space(byte)) {
        if (begun_) sink.settle();
        return Status::kMore;
      }
      collect_tags();
    }
    return push_tag(byte, sink);
  }

  bool finish(CallSink& sink) override {
    if (value_) {
      std::string json;
      value_->finish(json);
      sink.add_arguments(json);
      sink.end_call();
      sink.settle();
      return true;
    }
    if (!begun_ && (!tags_.empty() || !tools_.needs_nothing(name_.name))) return false;
    // Between parameters, a call to which nothing is missing is whole; half a tag that opens
    // another one shows that something is.
    bool whole = tools_.has_required(name_.name, seen_);
    if (!tags_.empty()) {
      bool ends = false;
      for (const Tag& tag : tags_) ends = ends || tag.meaning != Tag::Meaning::kParameter;
      whole = whole && ends;
    }
    end(whole, sink);
    sink.settle();
    return true;
  }

 private:
  // One tag that may come next.
  struct Tag {
    enum class Meaning : std::uint8_t { kParameter, kParameterEnd, kEnd } meaning;
    std::size_t parameter;  // index of its syntax
    PatternMatch match;
  };

  void collect_tags() {
    for (std::size_t i = 0; i < format_.parameters.size(); ++i) {
      tags_.push_back({Tag::Meaning::kParameter, i, PatternMatch(format_.parameters[i].open)});
      if (begun_) tags_.push_back({Tag::Meaning::kParameterEnd, i, PatternMatch(closing_tags_[i])});
    }
    for (const Pattern& pattern : format_.parameters_end) {
      tags_.push_back({Tag::Meaning::kEnd, 0, PatternMatch(pattern)});
    }
    for (const Pattern& pattern : format_.close) {
      tags_.push_back({Tag::Meaning::kEnd, 0, PatternMatch(pattern)});
    }
  }

  Status push_tag(char byte, CallSink& sink) {
    std::vector<Tag> alive;
    for (Tag& tag : tags_) {
      const PatternMatch::Status status = tag.match.push(byte);
      if (status == PatternMatch::Status::kMore) alive.push_back(tag);
      if (status != PatternMatch::Status::kMatched) continue;
      const Tag found = tag;
      tags_.clear();
      return take(found, sink);
    }
    tags_ = std::move(alive);
    if (!tags_.empty()) return Status::kMore;
    if (!begun_) return Status::kFailed;
    // Something else stands here. The call is whole unless a parameter is missing.
    end(tools_.has_required(name_.name, seen_), sink);
    return Status::kEndBefore;
  }

  Status take(const Tag& tag, CallSink& sink) {
    if (tag.meaning == Tag::Meaning::kParameter) {
      begin_parameter(tag, sink);
      return Status::kMore;
    }
    if (tag.meaning == Tag::Meaning::kEnd) end(true, sink);
    sink.settle();
    return tag.meaning == Tag::Meaning::kEnd ? Status::kEnd : Status::kMore;
  }

  void begin_parameter(const Tag& tag, CallSink& sink) {
    std::string json = begun_ ? ", " : "{";
    begin(sink);
    const std::string& key = tag.match.key();
    ++seen_[key];
    append_json_quoted(key, json);
    json += ": ";
    sink.add_arguments(json);
    sink.settle();
    ValueType type{tools_.parameters(name_.name).property(key).types(), std::nullopt};
    if (const std::string& word = tag.match.type(); !word.empty()) {
      type.string = word == "true" || word == "string";
    }
    const ParameterSyntax& syntax = format_.parameters[tag.parameter];
    value_.emplace(ParameterValue::Syntax{syntax.close, format_.lines_around_values, syntax.cdata},
                   type);
  }

  Status push_value(char byte, CallSink& sink) {
    std::string json;
    const ParameterValue::Status status = value_->push(byte, json);
    if (!json.empty()) sink.add_arguments(json);
    if (status == ParameterValue::Status::kMore) {
      if (value_->streams()) sink.settle();
      return Status::kMore;
    }
    if (status == ParameterValue::Status::kDone) {
      sink.settle();
    } else {
      sink.settle_first(value_->consumed());
    }
    value_.reset();
    return Status::kMore;
  }

  void begin(CallSink& sink) {
    if (!begun_) sink.begin_call(name_.name, name_.id);
    begun_ = true;
  }

  void end(bool complete, CallSink& sink) {
    if (!begun_) {
      begin(sink);
      sink.add_arguments("{");
    }
    if (complete) sink.add_arguments("}");
    sink.end_call();
  }

  const AnswerFormat& format_;
  const ToolSet& tools_;
  const CallName name_;
  std::vector<Pattern> closing_tags_;
  std::vector<Tag> tags_;  // those that what has come since the last value may still be
  std::optional<ParameterValue> value_;
  std::map<std::string, int> seen_;  // the parameters that have come
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_parameters_reader(const CallReaderArgs& args) {
  return std::make_unique<ParametersReader>(args);
}

}  // namespace bl
