#pragma once
#include <string>
#include <vector>

#include "api/tag_format.h"
#include "base/json.h"
#include "toolcall/call_syntax.h"

namespace bl::openai {

// Writes the arguments of calls as formats of structural tags (tag_format.h): what a format writes
// for a JSON schema.
class ArgumentForm {
 public:
  // All must outlive it.
  ArgumentForm(const AnswerFormat& format, const CallSyntax& syntax, const TagFormat& tags)
      : format_(format), syntax_(syntax), tags_(tags) {}

  // The arguments of a tool with this schema; null: it takes none.
  OrderedJson arguments(const OrderedJson& schema) const;

 private:
  struct Member {
    std::string name;
    OrderedJson schema;
    bool required = false;
  };
  // A schema, and the whole that its references lead into.
  struct Place {
    const OrderedJson& schema;
    const OrderedJson& root;
    int depth = 0;
  };
  static std::vector<Member> members_of(const OrderedJson& schema, const OrderedJson& root);

  OrderedJson parameters(const OrderedJson& schema) const;
  OrderedJson parameter(const Member& member, const OrderedJson& root) const;
  OrderedJson bare_text(const Member& member, const OrderedJson& root) const;

  // Values that are written as Python or with bare names. Their types are those of the schema, and
  // their bounds only where they are written as in JSON.
  OrderedJson value(const Place& place) const;
  OrderedJson value_of_type(const std::string& type, const Place& place) const;
  OrderedJson constant(const OrderedJson& value) const;
  std::string written(const OrderedJson& value) const;
  OrderedJson text_value(const Place& place) const;
  OrderedJson list(const Place& place) const;
  OrderedJson object(const Place& place, bool is_call) const;
  bool is_python() const { return syntax_.form == ArgumentsForm::kPython; }

  const AnswerFormat& format_;
  const CallSyntax& syntax_;
  const TagFormat& tags_;
};

}  // namespace bl::openai
