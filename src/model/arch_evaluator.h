#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "model/arch_value.h"
#include "model/hf_config.h"

namespace bl {

// Evaluates an architecture's values against a config, for the whole model or for one layer, and
// checks what it finds: kind and range, with one clear line where they are wrong.
class ArchEvaluator {
 public:
  // `sizes` are the names that expressions may use besides config keys.
  ArchEvaluator(const HfConfig& config, const std::map<std::string, ArchValue>& sizes)
      : config_(config), sizes_(sizes) {}

  const HfConfig& config() const { return config_; }
  // An evaluator for layer i of `layers`: {i} in keys is the layer's number, and a list with one
  // entry per layer stands for that layer's entry.
  ArchEvaluator for_layer(std::int64_t layer, std::int64_t layers) const;

  std::int64_t layer_number() const { return layer_ + 1; }

  struct Found {
    Json value;          // a scalar
    std::string origin;  // config key or expression, for messages
  };
  // The first alternative that has a value. A constant stands for a key that is absent: it does not
  // apply where the file has a null, or where transformers' class says what an absent key means.
  std::optional<Found> find(const ArchValue& value) const;
  bool holds(const Condition& condition) const;

  // A whole number in [least, most]. `what` names it in messages. Throws kInvalidFile if it is
  // absent, of another kind or out of range.
  struct Range {
    std::int64_t least = 1;
    std::int64_t most = 0;
  };
  std::int64_t whole(std::string_view what, const ArchValue& value, Range range) const;
  std::optional<std::int64_t> find_whole(std::string_view what, const ArchValue& value,
                                         Range range) const;
  // A finite number, or `fallback` if it is absent.
  double real(std::string_view what, const ArchValue& value, double fallback) const;
  std::optional<double> find_real(std::string_view what, const ArchValue& value) const;
  // A null is false, as in Python.
  bool flag(std::string_view what, const ArchValue& value, bool fallback) const;
  std::optional<std::string> find_text(std::string_view what, const ArchValue& value) const;
  // The first key of `value` that is null in the file, or absent and null in the class; or "".
  std::string null_key(const ArchValue& value) const;
  // Replaces {i} by the layer's number.
  std::string with_layer(std::string text) const;

 private:
  std::optional<Found> find_at(const ArchValue& value, int depth) const;
  std::optional<Found> find_key(const std::string& key) const;
  std::optional<Found> entry_of(const HfConfig::Found& found) const;
  std::optional<double> number_of(const std::string& name, int depth) const;
  std::optional<double> expression(std::string_view text, int depth) const;
  [[noreturn]] void circular() const;
  [[noreturn]] void wrong(std::string_view what, const Found& found, const std::string& must) const;
  [[noreturn]] void missing(std::string_view what, const ArchValue& value) const;

  const HfConfig& config_;
  const std::map<std::string, ArchValue>& sizes_;
  std::int64_t layer_ = -1;
  std::int64_t layers_ = 0;
};

}  // namespace bl
