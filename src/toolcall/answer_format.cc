#include "toolcall/answer_format.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "toolcall/embedded_answer_formats.h"

namespace bl {
namespace {

constexpr std::string_view kReasoningDocument = "reasoning";
constexpr std::string_view kSuffixMark = "§";

// Reads the members of a document and notices those that nobody asked for.
class FormatReader {
 public:
  FormatReader(const Json& object, std::string_view name) : object_(object), name_(name) {
    if (!object.is_object()) fail(ErrorCode::kInvalidFile, "{}: should be an object", name);
  }

  const Json* find(const char* key) {
    asked_.emplace_back(key);
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }
  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) wrong(key, "a string");
    return value->get<std::string>();
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
  }
  std::vector<std::string> texts(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_array()) wrong(key, "a list of strings");
    std::vector<std::string> texts;
    for (const Json& item : *value) {
      if (!item.is_string()) wrong(key, "a list of strings");
      texts.push_back(item.get<std::string>());
    }
    return texts;
  }
  std::vector<Pattern> patterns(const char* key) {
    std::vector<Pattern> patterns;
    for (const std::string& text : texts(key)) patterns.emplace_back(text);
    return patterns;
  }
  void check_all_known() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
        fail(ErrorCode::kInvalidFile, "{}: the key \"{}\" is unknown", name_, key);
      }
    }
  }
  [[noreturn]] void wrong(const char* key, const char* wanted) const {
    fail(ErrorCode::kInvalidFile, "{}: \"{}\" should be {}", name_, key, wanted);
  }

 private:
  const Json& object_;
  std::string_view name_;
  std::vector<std::string> asked_;
};

ReasoningSyntax read_reasoning(FormatReader& reader) {
  ReasoningSyntax syntax;
  syntax.open = reader.patterns("open");
  syntax.close = reader.patterns("close");
  syntax.anywhere = reader.flag("anywhere");
  syntax.ended_by_calls = reader.flag("ended_by_calls");
  return syntax;
}

ObjectKeys read_keys(const Json& object, std::string_view name) {
  FormatReader reader(object, name);
  ObjectKeys keys;
  keys.key_is_name = reader.flag("key_is_name");
  for (const auto& [key, list] :
       {std::pair("name", &keys.name), std::pair("arguments", &keys.arguments),
        std::pair("id", &keys.id)}) {
    if (auto texts = reader.texts(key); !texts.empty()) *list = std::move(texts);
  }
  reader.check_all_known();
  return keys;
}

CallWriting read_writing(const Json& object, std::string_view name) {
  FormatReader reader(object, name);
  CallWriting writing;
  writing.open = reader.text("open");
  writing.call = reader.text("call");
  writing.parameter = reader.text("parameter");
  writing.between = reader.text("between");
  writing.close = reader.text("close");
  reader.check_all_known();
  return writing;
}

std::vector<ParameterSyntax> read_parameters(const Json& list, std::string_view name) {
  std::vector<ParameterSyntax> parameters;
  for (const Json& item : list) {
    FormatReader reader(item, name);
    const std::string open = reader.text("open");
    const std::string close = reader.text("close");
    const bool cdata = reader.flag("cdata");
    reader.check_all_known();
    if (close.empty()) fail(ErrorCode::kInvalidFile, "{}: a parameter has no \"close\"", name);
    parameters.push_back({Pattern(open), close, cdata});
  }
  return parameters;
}

// A form needs what its reader reads by.
void check_forms(const AnswerFormat& format) {
  for (const Pattern& pattern : format.calls) {
    const CallForm form = pattern.form();
    const char* missing = nullptr;
    if (form == CallForm::kNone) missing = "a form at the end of each of its \"calls\"";
    if (form == CallForm::kParameters && format.parameters.empty()) missing = "\"parameters\"";
    if (form == CallForm::kBraces && format.string_delimiter.empty()) {
      missing = "\"string_delimiter\"";
    }
    if (form == CallForm::kElements && format.element_prefix.empty()) {
      missing = "\"element_prefix\"";
    }
    if (missing != nullptr) {
      fail(ErrorCode::kInvalidFile, "{}: the format needs {}", format.name, missing);
    }
  }
}

std::vector<FormatDocument> read_format_documents() {
  std::vector<FormatDocument> documents;
  for (const EmbeddedDocument& document : embedded_answer_formats()) {
    if (document.name == kReasoningDocument) continue;
    documents.push_back(read_format_document(document.text, document.name, {}));
  }
  return documents;
}

std::vector<ReasoningDocument> read_reasoning_documents() {
  std::vector<ReasoningDocument> documents;
  for (const EmbeddedDocument& document : embedded_answer_formats()) {
    if (document.name != kReasoningDocument) continue;
    const Json json = parse_json(document.text, document.name);
    for (const Json& item : json.at("markers")) {
      FormatReader reader(item, document.name);
      ReasoningDocument entry;
      entry.syntax = read_reasoning(reader);
      entry.drop = reader.patterns("drop");
      entry.sign = reader.text("sign");
      reader.check_all_known();
      documents.push_back(std::move(entry));
    }
  }
  return documents;
}

}  // namespace

FormatDocument read_format_document(std::string_view text, std::string_view name,
                                    std::string_view suffix) {
  std::string source(text);
  for (std::size_t at = source.find(kSuffixMark); at != source.npos;
       at = source.find(kSuffixMark, at + suffix.size())) {
    source.replace(at, kSuffixMark.size(), suffix);
  }
  const Json json = parse_json(source, name);
  FormatReader reader(json, name);
  FormatDocument document;
  document.text = text;
  AnswerFormat& format = document.format;
  format.name = name;
  reader.text("about");
  document.suffix_after = reader.text("suffix_after");
  document.signs = reader.texts("signs");
  if (const Json* reasoning = reader.find("reasoning")) {
    FormatReader inner(*reasoning, name);
    format.reasoning = read_reasoning(inner);
    inner.check_all_known();
  }
  format.drop = reader.patterns("drop");
  format.calls = reader.patterns("calls");
  format.close = reader.patterns("close");
  if (const Json* list = reader.find("parameters"))
    format.parameters = read_parameters(*list, name);
  format.parameters_end = reader.patterns("parameters_end");
  format.lines_around_values = reader.flag("lines_around_values");
  if (const Json* keys = reader.find("keys")) format.keys = read_keys(*keys, name);
  format.name_prefix = reader.text("name_prefix");
  format.name_ends_in_index = reader.flag("name_ends_in_index");
  format.element_prefix = reader.text("element_prefix");
  format.string_delimiter = reader.text("string_delimiter");
  format.prompt = reader.text("prompt");
  if (const Json* writing = reader.find("write")) format.writing = read_writing(*writing, name);
  reader.check_all_known();
  check_forms(format);
  return document;
}

const std::vector<FormatDocument>& format_documents() {
  static const std::vector<FormatDocument> documents = read_format_documents();
  return documents;
}

const std::vector<ReasoningDocument>& reasoning_documents() {
  static const std::vector<ReasoningDocument> documents = read_reasoning_documents();
  return documents;
}

AnswerFormat named_answer_format(std::string_view name) {
  std::string names;
  for (const FormatDocument& document : format_documents()) {
    if (document.format.name == name) {
      AnswerFormat format = document.format;
      if (!format.has_reasoning()) format.reasoning = reasoning_documents().front().syntax;
      return format;
    }
    names += (names.empty() ? "" : ", ") + document.format.name;
  }
  fail(ErrorCode::kNotFound, "there is no answer format \"{}\"; there are {}", name, names);
}

}  // namespace bl
