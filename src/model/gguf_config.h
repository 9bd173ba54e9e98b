#pragma once
// config.json and generation_config.json of the model in a GGUF file.
//
// Rules of archs/gguf-*.json, evaluated over the file's metadata:
//   "attention.head_count"        a key below the architecture's prefix; "x!" must exist, "/x" has
//   no
//                                 prefix
//   [rule, …]                     the first that gives a value
//   {"value": …}                  a constant; {"value": null} puts a null into config.json
//   {"if": condition, "then": rule, "else": rule}
//   {"rows": "token_embd.weight"} the first dimension of a tensor
//   {"product": [rule, …]}, {"quotient": [rule, rule]}, {"minus": [rule, rule]}, {"root": rule}
//   {"layer_types": {"every": n, "list": key, "window": key}}: every n-th layer is full attention
// Conditions: "key" (exists and is neither zero nor false), "!key", "tensor NAME", "!tensor NAME".

#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "format/gguf_file.h"
#include "model/gguf_arch.h"

namespace bl {

// Reads one file's metadata through rules. The file and the description must outlive it.
class GgufMetadata {
 public:
  GgufMetadata(const GgufFile& file, const GgufArch& arch);

  // Returns null if the rule finds nothing, and a discarded value if it asks for a null.
  Json evaluate(const Json& rule) const;
  bool holds(const std::string& condition) const;
  // Returns "NAME.block_count" for "block_count".
  std::string full_key(std::string_view key) const;
  // A positive integer (a list of equal ones counts as one). Throws kInvalidFile, naming the key.
  std::optional<std::int64_t> size(std::string_view key) const;
  std::int64_t required_size(std::string_view key) const;

  std::int64_t layers() const;  // without layers that only draft further tokens
  std::int64_t heads() const;
  std::int64_t kv_heads() const;
  std::int64_t head_dim() const;

  const GgufFile& file() const { return file_; }
  const GgufArch& arch() const { return arch_; }

 private:
  Json value_of(std::string_view key) const;
  Json list_of(const std::string& full_key) const;
  Json arithmetic(const Json& rule) const;
  Json layer_types(const Json& rule) const;

  const GgufFile& file_;
  const GgufArch& arch_;
  std::string prefix_;
};

// Returns config.json with the keys that transformers expects for the architecture.
Json gguf_config(const GgufMetadata& metadata);
// Returns generation_config.json: special token ids. `end_names` are texts of control tokens that
// end an answer.
Json gguf_generation_config(const GgufMetadata& metadata, const Json& end_names);

// Adds rope_theta, rope_scaling and related keys to `config` (gguf_rope.cc). `rule`: {"extra":
// {key: rule}} gives further members of rope_scaling.
void add_gguf_rope(const GgufMetadata& metadata, const Json& rule, Json& config);

// Returns the shortest decimal that reads back as the same float: 1e-05, not 9.99999974e-06.
double shortest_decimal(float value);

}  // namespace bl
