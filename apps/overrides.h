#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/options.h"

namespace bl {

// The text of one field that a flag may set later over a value not known yet.
struct OverrideText {
  std::string key;
  std::string initial;
  std::function<void(std::string_view)> check;  // throws where the text is no such value
  std::optional<std::string> text;
};
inline void parse_value(std::string_view text, OverrideText& field) {
  field.check(text);
  field.text = std::string(text);
}
inline std::string show_value(const OverrideText& field) { return field.initial; }

// The flags of an options struct, remembered apart from it: the model's own settings lie between
// the defaults and what the user wrote.
template <class Options>
class Overrides {
 public:
  template <class V>
  void visit(V&& v) {
    fields_.clear();
    Recorder<std::remove_reference_t<V>> recorder{v, fields_};
    Options defaults;
    defaults.visit(recorder);
  }
  bool is_given(std::string_view key) const {
    for (const OverrideText& field : fields_) {
      if (field.key == key && field.text) return true;
    }
    return false;
  }
  void apply(Options& options) const {
    for (const OverrideText& field : fields_) {
      if (field.text) set_option(options, field.key, *field.text);
    }
  }

 private:
  template <class V>
  struct Recorder {
    V& target;
    std::deque<OverrideText>& fields;
    template <class T>
    void operator()(T& field, const OptionField& about) {
      const auto check = [](std::string_view text) {
        T value{};
        parse_value(text, value);
      };
      fields.push_back({option_key(about), show_value(field), check, std::nullopt});
      target(fields.back(), about);
    }
  };
  std::deque<OverrideText> fields_;
};

}  // namespace bl
