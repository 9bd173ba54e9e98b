#pragma once
// The outputs of the shared folder tool-calls, each with the parser that its template asks for.

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"
#include "toolcall/answer_parser.h"

namespace bl::test {

struct SharedCase {
  Json document;  // as the folder's README describes it
  const AnswerFormat* format = nullptr;
  std::shared_ptr<const ToolSet> tools;
  AnswerOptions options;

  const std::string& text() const { return document.at("text").get_ref<const std::string&>(); }
  AnswerParser parser() const { return AnswerParser(*format, *tools, options); }
};

// Reads the cases one after another. The cases point to formats that live as long as this.
class SharedCases {
 public:
  static bool are_here();
  SharedCases();  // requires are_here()

  std::optional<SharedCase> next();
  // The name of the format that was found in each template so far.
  std::map<std::string, std::string> formats() const;

 private:
  struct KnownTemplate {
    ChatTemplate chat;
    AnswerFormat format;
    std::optional<std::string> render(OrderedJson variables) const;
  };
  const KnownTemplate& known(const Json& document);

  std::ifstream lines_;
  std::map<std::string, KnownTemplate> templates_;
};

}  // namespace bl::test
