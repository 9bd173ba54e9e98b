#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "toolcall/pattern.h"

namespace bl {

// Where a model's reasoning begins and ends in its answer.
struct ReasoningSyntax {
  std::vector<Pattern> open;
  std::vector<Pattern> close;
  // Reasoning may begin anywhere, as its markers are control tokens; else only where an answer
  // begins, since models mention the markers in their answers.
  bool anywhere = false;
  // A call ends the reasoning, as in this format nothing but calls can follow without a marker.
  bool ended_by_calls = false;
};

// One parameter as {parameters} and {elements} write it.
struct ParameterSyntax {
  Pattern open;
  std::string close;
  bool cdata = false;  // a string may stand in <![CDATA[ and ]]>
};

// The keys of a call that is a JSON object.
struct ObjectKeys {
  std::vector<std::string> name = {"name"};
  std::vector<std::string> arguments = {"arguments", "parameters"};
  std::vector<std::string> id = {"id"};
  bool key_is_name = false;  // {NAME: ARGUMENTS}
};

// The canonical text of calls, for constrained generation.
struct CallWriting {
  std::string open;       // before the first call
  std::string call;       // one call, with {name} and {arguments} or {parameters}
  std::string parameter;  // one parameter, with {key} and {value}
  std::string between;    // between two calls
  std::string close;      // after the last call
  bool empty() const { return call.empty(); }
};

// How a chat template wants answers written: reasoning, content and calls of tools.
struct AnswerFormat {
  std::string name;  // of the document that describes the calls; "none" where there is no format
  ReasoningSyntax reasoning;
  std::vector<Pattern> drop;   // markers around content, which belong to nobody
  std::vector<Pattern> calls;  // the beginnings of calls
  std::vector<Pattern> close;  // what may follow a call, once or several times
  std::vector<ParameterSyntax> parameters;
  std::vector<Pattern> parameters_end;
  bool lines_around_values = false;  // a line end before and after a bare value is not part of it
  ObjectKeys keys;
  std::string name_prefix;          // is cut off the names of tools
  bool name_ends_in_index = false;  // as is a colon with digits at their end
  std::string element_prefix;       // before the tags of {elements}
  std::string string_delimiter;     // around the strings of {braces}
  std::string prompt;               // the end of the prompt that is the beginning of the answer
  CallWriting writing;

  bool has_calls() const { return !calls.empty(); }
  bool has_reasoning() const { return !reasoning.close.empty(); }
};

// A document of toolcall/formats, before the reasoning is known.
struct FormatDocument {
  AnswerFormat format;
  std::string_view text;           // the document
  std::string suffix_after;        // its tags carry a suffix, which follows this text
  std::vector<std::string> signs;  // texts that templates of this format have all of
};

// A way of marking reasoning that templates share.
struct ReasoningDocument {
  ReasoningSyntax syntax;
  std::vector<Pattern> drop;
  std::string sign;  // a text that the template has
};

// The formats that are built in, in the order of their file names.
const std::vector<FormatDocument>& format_documents();
const std::vector<ReasoningDocument>& reasoning_documents();

// Reads one document; toolcall/README.md describes its keys. `suffix` takes the place of § in it.
// Throws kInvalidFile.
FormatDocument read_format_document(std::string_view text, std::string_view name,
                                    std::string_view suffix);
// The format with a name; with the first marks of reasoning_documents() if it has none of its own.
// Throws kNotFound with the names that there are.
AnswerFormat named_answer_format(std::string_view name);

}  // namespace bl
