#pragma once
#include <memory>
#include <string>

#include "engine/engine.h"
#include "model_options.h"

namespace bl {

// The options for speculative decoding, for every command that generates text.
struct SpeculationFlags {
  std::string draft;
  bool ngram = false;
  std::int64_t ngram_min = 2;
  std::string ngram_text;
  std::string tokens = "auto";
  std::shared_ptr<const OpenedModel> opened;  // a draft model that is not on disk

  template <class V>
  void visit(V&& v) {
    v.group("Speculative decoding (it does not change the text)");
    v(draft,
      {"--draft", "DIR|mtp", "draft model (same vocabulary), DFlash layers, or mtp (own)", "none"});
    v(ngram, {"--ngram", "", "draft by looking up n-grams in the text so far"});
    v(ngram_min, {"--ngram-min", "N", "tokens of an n-gram that must match, 1 … 32"});
    v(ngram_text, {"--ngram-text", "FILE",
                   "also look up n-grams in this text, which answers may quote", "none"});
    v(tokens, {"--draft-tokens", "N|auto", "tokens per draft, 1 … 64; auto: as many as pay off"});
  }

  // Checks everything that needs no file. Throws UsageError.
  void check() const;
  bool on() const { return ngram || !draft.empty() || opened != nullptr; }
  // Loads the draft, if there is one, before the model, and adds the rows that it needs to
  // `session`. A draft that reads the model's hidden states becomes part of that session.
  // `of_model`: the model's options.
  SpeculationOptions load(const ModelOptions& of_model, SessionOptions& session) const;

 private:
  std::int64_t count() const;  // 0: auto
};

// Such as "speculation: 120 tokens drafted, 96 accepted (80.0 %)"; empty if nothing was drafted.
std::string describe_speculation(std::int64_t drafted, std::int64_t accepted);

}  // namespace bl
