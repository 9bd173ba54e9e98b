// {elements}: each parameter is an element named after it. Objects and lists are elements inside
// elements, those of lists named "item". A prefix stands before every tag.

#include <map>
#include <optional>
#include <vector>

#include "toolcall/bare_value.h"
#include "toolcall/call_reader.h"
#include "toolcall/json_string.h"

namespace bl {
namespace {

constexpr std::size_t kMaxElementDepth = 64;
constexpr std::string_view kItem = "item";

bool is_element_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

// An element whose end has not come yet. `json` has the members or items that are whole.
struct OpenElement {
  std::string name;
  SchemaView schema;
  std::string text;
  std::string json;
  bool has_children = false;
  bool is_list = false;
};

class ElementsReader final : public CallReader {
 public:
  explicit ElementsReader(const CallReaderArgs& args)
      : format_(args.format),
        tools_(args.tools),
        name_(call_name(args.format, args.head.name(), args.head.id())),
        schema_(args.tools.parameters(name_.name)),
        open_(args.format.element_prefix + "<{key}>"),
        close_(args.format.element_prefix + "</{key}>") {}

  Status push(char byte, CallSink& sink) override {
    if (tags_.empty()) {
      if (elements_.empty() && is_element_space(byte)) {
        if (begun_) sink.settle();
        return Status::kMore;
      }
      if (!elements_.empty() && byte != open_.first()) {
        elements_.back().text.push_back(byte);
        sink.settle();
        return Status::kMore;
      }
      collect_tags();
    }
    return push_tag(byte, sink);
  }

  bool finish(CallSink& sink) override {
    if (!begun_ && (!tags_.empty() || !tools_.needs_nothing(name_.name))) return false;
    const bool whole = elements_.empty() && tools_.has_required(name_.name, seen_);
    end(whole, sink);
    sink.settle();
    return true;
  }

 private:
  struct Tag {
    enum class Meaning : std::uint8_t { kOpen, kClose, kEnd } meaning;
    PatternMatch match;
  };

  void collect_tags() {
    tag_text_.clear();
    const bool inside = !elements_.empty();
    if (!inside) {
      for (const Pattern& pattern : format_.parameters_end) {
        tags_.push_back({Tag::Meaning::kEnd, PatternMatch(pattern)});
      }
      for (const Pattern& pattern : format_.close) {
        tags_.push_back({Tag::Meaning::kEnd, PatternMatch(pattern)});
      }
    } else {
      tags_.push_back({Tag::Meaning::kClose, PatternMatch(close_)});
    }
    tags_.push_back({Tag::Meaning::kOpen, PatternMatch(open_)});
  }

  Status push_tag(char byte, CallSink& sink) {
    tag_text_.push_back(byte);
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
    if (!elements_.empty()) {
      // A tag may begin inside what looked like one.
      elements_.back().text.push_back(tag_text_.front());
      sink.settle_first(1);
      return Status::kMore;
    }
    if (!begun_) return Status::kFailed;
    end(tools_.has_required(name_.name, seen_), sink);
    return Status::kEndBefore;
  }

  Status take(const Tag& tag, CallSink& sink) {
    const std::string& key = tag.match.key();
    switch (tag.meaning) {
      case Tag::Meaning::kEnd:
        end(true, sink);
        sink.settle();
        return Status::kEnd;
      case Tag::Meaning::kOpen:
        if (elements_.size() == kMaxElementDepth || key.starts_with('/')) return broken(sink);
        open(key, sink);
        break;
      case Tag::Meaning::kClose:
        if (key != elements_.back().name) return broken(sink);
        close(sink);
        break;
    }
    sink.settle();
    return Status::kMore;
  }

  Status broken(CallSink& sink) {
    if (!begun_) return Status::kFailed;
    sink.add_arguments(tag_text_);
    sink.settle();
    return Status::kBroken;
  }

  void open(const std::string& key, CallSink& sink) {
    if (elements_.empty()) {
      std::string json = begun_ ? ", " : "{";
      begin(sink);
      ++seen_[key];
      append_json_quoted(key, json);
      json += ": ";
      sink.add_arguments(json);
      elements_.push_back({key, schema_.property(key), {}, {}, false, false});
      return;
    }
    OpenElement& parent = elements_.back();
    if (!parent.has_children) {
      parent.has_children = true;
      const TypeSet types = parent.schema.types();
      parent.is_list = key == kItem && !types.has(TypeSet::kObject);
    }
    const SchemaView schema = parent.is_list ? parent.schema.items() : parent.schema.property(key);
    elements_.push_back({key, schema, {}, {}, false, false});
  }

  void close(CallSink& sink) {
    const OpenElement element = std::move(elements_.back());
    elements_.pop_back();
    const std::string json = element_json(element);
    if (elements_.empty()) {
      sink.add_arguments(json);
      return;
    }
    OpenElement& parent = elements_.back();
    if (!parent.json.empty()) parent.json += ", ";
    if (!parent.is_list) {
      append_json_quoted(element.name, parent.json);
      parent.json += ": ";
    }
    parent.json += json;
  }

  static std::string element_json(const OpenElement& element) {
    if (element.has_children) {
      return element.is_list ? '[' + element.json + ']' : '{' + element.json + '}';
    }
    const TypeSet types = element.schema.types();
    if (is_blank(element.text) && !types.only_string() && !types.has(TypeSet::kString)) {
      if (types.has(TypeSet::kArray)) return "[]";
      if (types.has(TypeSet::kObject)) return "{}";
    }
    return bare_value_json(element.text, types);
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
  const SchemaView schema_;
  const Pattern open_;
  const Pattern close_;
  std::vector<Tag> tags_;
  std::string tag_text_;
  std::vector<OpenElement> elements_;
  std::map<std::string, int> seen_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_elements_reader(const CallReaderArgs& args) {
  return std::make_unique<ElementsReader>(args);
}

}  // namespace bl
