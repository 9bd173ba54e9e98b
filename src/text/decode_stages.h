#pragma once
// The stages of the decoders of tokenizer.json and of sentencepiece models.

#include <memory>
#include <string>

#include "text/decode_stage.h"
#include "text/text_pattern.h"

namespace bl {

// Puts a space between tokens.
class JoinStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void put(std::string_view part, bool last) override;

 private:
  bool in_token_ = false;
  bool any_ = false;
};

// Joins all tokens into one.
class FuseStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void put(std::string_view part, bool) override { next().put(part, false); }
  void finish() override;
};

// Reads the characters of tokens as bytes (byte_level.h), which together are UTF-8.
class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override;

 protected:
  void token(std::string_view text) override;

 private:
  std::string bytes_;  // the bytes of a character that is not complete yet
  std::string text_;
};

// Reads tokens <0xHH> as bytes. A run of them is text if all of it is UTF-8, else every byte
// becomes U+FFFD; so a run is certain only at its end.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override;

 protected:
  void token(std::string_view text) override;

 private:
  void flush();
  std::string bytes_;
};

// Turns the mark of a word's beginning into a space; in the first token it may vanish instead.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(std::unique_ptr<DecodeStage> next, std::string mark, bool drop_first)
      : DecodeStage(std::move(next)), mark_(std::move(mark)), drop_(drop_first) {}
  void put(std::string_view part, bool last) override;

 private:
  std::string mark_;
  bool drop_;
};

// Joins the pieces of a word (those with the prefix) and puts a space before every other token but
// the first.
class WordPieceStage final : public WholeTokenStage {
 public:
  WordPieceStage(std::unique_ptr<DecodeStage> next, std::string prefix, bool cleanup)
      : WholeTokenStage(std::move(next)), prefix_(std::move(prefix)), cleanup_(cleanup) {}

 protected:
  void token(std::string_view text) override;

 private:
  std::string prefix_;
  bool cleanup_;
  bool any_ = false;
};

// Turns the suffix that marks a word's end into a space; in the last token into nothing.
class WordSuffixStage final : public WholeTokenStage {
 public:
  WordSuffixStage(std::unique_ptr<DecodeStage> next, std::string suffix)
      : WholeTokenStage(std::move(next)), suffix_(std::move(suffix)) {}
  void finish() override;

 protected:
  void token(std::string_view text) override;

 private:
  void hand_on(std::string_view end_of_word);
  TextPattern suffix_;
  std::string waiting_;
  bool any_ = false;
};

// Connectionist temporal classification: drops repeated tokens and padding.
class CtcStage final : public WholeTokenStage {
 public:
  struct Options {
    std::string padding;
    std::string word_delimiter;
    bool cleanup = true;
  };
  CtcStage(std::unique_ptr<DecodeStage> next, Options options)
      : WholeTokenStage(std::move(next)), options_(std::move(options)) {}

 protected:
  void token(std::string_view text) override;

 private:
  Options options_;
  std::string previous_;
  bool any_ = false;
};

// Removes up to `start` copies of `content` from the beginning of each token and up to `stop` from
// its end.
class StripStage final : public DecodeStage {
 public:
  StripStage(std::unique_ptr<DecodeStage> next, std::string content, std::size_t start,
             std::size_t stop)
      : DecodeStage(std::move(next)),
        content_(std::move(content)),
        start_(start),
        stop_(stop),
        start_left_(start) {}
  void put(std::string_view part, bool last) override;

 private:
  std::string content_;
  std::size_t start_;
  std::size_t stop_;
  std::size_t start_left_;
  std::size_t held_ = 0;  // copies of `content` at the end that are held back
};

// Replaces every match of a pattern in a token by `content`.
class ReplaceStage final : public DecodeStage {
 public:
  // `pattern` must outlive the stage.
  ReplaceStage(std::unique_ptr<DecodeStage> next, const TextPattern& pattern, std::string content)
      : DecodeStage(std::move(next)), pattern_(pattern), content_(std::move(content)) {}
  void put(std::string_view part, bool last) override;

 private:
  std::size_t open_suffix(std::string_view text) const;
  const TextPattern& pattern_;
  std::string content_;
  std::string held_;
};

// Decodes tokens of a sentencepiece model: byte pieces, the mark of spaces, the dummy prefix.
class SentencePieceStage final : public WholeTokenStage {
 public:
  struct Options {
    bool drop_first_space = true;      // encoding put a space before the text
    bool drop_leading_spaces = false;  // encoding removed all white space before the text
  };
  SentencePieceStage(std::unique_ptr<DecodeStage> next, Options options)
      : WholeTokenStage(std::move(next)), options_(options) {}
  void finish() override;

 protected:
  void token(std::string_view text) override;

 private:
  void flush(bool final);
  Options options_;
  std::string bytes_;
  std::string text_;
  bool at_start_ = true;
};

// Returns the value of a token <0xHH>, or -1.
int byte_token_value(std::string_view token);

}  // namespace bl
