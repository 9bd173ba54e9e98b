#pragma once
#include <memory>
#include <string>

#include "engine/engine.h"
#include "model_options.h"

namespace bl {

// The options of every command that generates, about guessing tokens ahead.
struct SpeculationFlags {
  std::string draft;
  bool ngram = false;
  std::int64_t ngram_min = 2;
  std::string ngram_text;
  std::string tokens = "auto";
  std::shared_ptr<const OpenedModel> opened;  // a draft that is not on disk

  template <class V>
  void visit(V&& v) {
    v.group("Speculation (the text is the same with and without)");
    v(draft, {"--draft", "DIR|mtp",
              "what guesses ahead: a smaller model of the vocabulary, layers that read this one's "
              "states (DFlash), its own (mtp)",
              "none"});
    v(ngram, {"--ngram", "", "guess that the text goes on as it did before"});
    v(ngram_min, {"--ngram-min", "N", "last tokens that must have stood there so"});
    v(ngram_text, {"--ngram-text", "FILE", "a text that answers are expected to quote", "none"});
    v(tokens, {"--draft-tokens", "N|auto", "tokens guessed at once; auto: as many as pay"});
  }

  // Checks what can be checked without a file; UsageError.
  void check() const;
  bool on() const { return ngram || !draft.empty() || opened != nullptr; }
  // Loads the draft where there is one, before the model, whose session gets the rows that it
  // needs; one that reads the model's hidden states becomes part of that session. `of_model`: the
  // options of the model.
  SpeculationOptions load(const ModelOptions& of_model, SessionOptions& session) const;

 private:
  std::int64_t count() const;  // 0: auto
};

// "speculation: 120 tokens guessed, 96 right (80.0 %)"; empty where nothing was guessed.
std::string describe_speculation(std::int64_t drafted, std::int64_t accepted);

}  // namespace bl
