#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/options.h"

namespace bl {

// One field that a flag may set. The text is kept until the value below it is known.
struct OverrideText {
  std::string key;
  std::string initial;
  std::function<void(std::string_view)> check;  // throws if the text is not a valid value
  std::optional<std::string> text;
};
inline void parse_value(std::string_view text, OverrideText& field) {
  field.check(text);
  field.text = std::string(text);
}
inline std::string show_value(const OverrideText& field) { return field.initial; }

// Remembers which fields of an options struct the user set. They are applied later, because the
// model's own settings come between the defaults and the user's values.
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
