#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/split_pieces.h"
#include "text/text_pattern.h"
#include "text/unicode.h"
#include "text/unicode_scripts.h"

namespace bl {
namespace {

// Cuts every piece where a pattern matches.
void split_by(const TextPattern& pattern, SplitBehavior behavior, bool invert, PreTokens& tokens) {
  TextPattern::Walker walker(pattern);
  std::vector<PreTokens::Piece> out;
  out.reserve(std::max(tokens.pieces.size(), tokens.text.size() / 5));
  std::vector<Stretch> stretches;
  for (const PreTokens::Piece& piece : tokens.pieces) {
    stretches.clear();
    walker.reset(tokens.view(piece));
    std::size_t used = piece.begin;
    std::size_t begin = 0;
    std::size_t end = 0;
    while (walker.next(begin, end)) {
      begin += piece.begin;
      end += piece.begin;
      if (begin != used) stretches.push_back({used, begin, invert});
      stretches.push_back({begin, end, !invert});
      used = end;
    }
    if (used != piece.end) stretches.push_back({used, piece.end, invert});
    arrange(piece, stretches, behavior, out);
  }
  tokens.pieces = std::move(out);
}

// Cuts every piece at characters of a class; each such character is a match of its own.
template <class IsMatch>
void split_at_characters(IsMatch is_match, SplitBehavior behavior, PreTokens& tokens) {
  std::vector<PreTokens::Piece> out;
  out.reserve(tokens.pieces.size());
  std::vector<Stretch> stretches;
  for (const PreTokens::Piece& piece : tokens.pieces) {
    stretches.clear();
    std::size_t used = piece.begin;
    for (std::size_t i = piece.begin; i < piece.end;) {
      const CodePoint c = code_point_at(tokens.text, i);
      if (is_match(c.value)) {
        if (used != i) stretches.push_back({used, i, false});
        used = i + c.size;
        stretches.push_back({i, used, true});
      }
      i += c.size;
    }
    if (used != piece.end) stretches.push_back({used, piece.end, false});
    arrange(piece, stretches, behavior, out);
  }
  tokens.pieces = std::move(out);
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  return is_punctuation(c);
}

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PreTokens& tokens) const override { split_by(pattern_, behavior_, invert_, tokens); }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Cuts at the characters for which `is_match` holds.
class ClassPreTokenizer final : public PreTokenizer {
 public:
  ClassPreTokenizer(bool (*is_match)(char32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}
  void apply(PreTokens& tokens) const override {
    split_at_characters(is_match_, behavior_, tokens);
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

// Cuts at one character, which is removed.
class DelimiterPreTokenizer final : public PreTokenizer {
 public:
  explicit DelimiterPreTokenizer(char32_t delimiter) : delimiter_(delimiter) {}
  void apply(PreTokens& tokens) const override {
    split_at_characters([this](char32_t c) { return c == delimiter_; }, SplitBehavior::kRemoved,
                        tokens);
  }

 private:
  char32_t delimiter_;
};

// Keeps runs of word characters, and runs of other characters that are not white space.
class WhitespacePreTokenizer final : public PreTokenizer {
 public:
  void apply(PreTokens& tokens) const override {
    enum class Kind { kSpace, kWord, kOther };
    const auto kind_of = [](char32_t c) {
      return is_word_character(c) ? Kind::kWord : is_white_space(c) ? Kind::kSpace : Kind::kOther;
    };
    std::vector<PreTokens::Piece> out;
    for (const PreTokens::Piece& piece : tokens.pieces) {
      for (std::size_t i = piece.begin; i < piece.end;) {
        const std::size_t begin = i;
        CodePoint c = code_point_at(tokens.text, i);
        const Kind kind = kind_of(c.value);
        do {
          i += c.size;
          if (i < piece.end) c = code_point_at(tokens.text, i);
        } while (i < piece.end && kind_of(c.value) == kind);
        if (kind == Kind::kSpace) continue;
        out.push_back({begin, i, piece.at_origin && begin == piece.begin});
      }
    }
    tokens.pieces = std::move(out);
  }
};

// Cuts every piece into parts of `length` characters.
class FixedLengthPreTokenizer final : public PreTokenizer {
 public:
  explicit FixedLengthPreTokenizer(std::int64_t length) : length_(length) {}
  void apply(PreTokens& tokens) const override {
    std::vector<PreTokens::Piece> out;
    for (const PreTokens::Piece& piece : tokens.pieces) {
      for (std::size_t i = piece.begin; i < piece.end;) {
        const std::size_t begin = i;
        for (std::int64_t n = 0; n < length_ && i < piece.end; ++n) i += utf8_size(tokens.text[i]);
        out.push_back({begin, i, piece.at_origin && begin == piece.begin});
      }
    }
    tokens.pieces = std::move(out);
  }

 private:
  std::int64_t length_;
};

// Cuts pieces by the byte-level pattern and rewrites them in the byte-level alphabet.
class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_pattern, const std::string& where)
      : add_prefix_space_(add_prefix_space) {
    if (use_pattern) pattern_ = std::make_unique<TextPattern>(kByteLevelPattern, where);
  }

  void apply(PreTokens& tokens) const override {
    if (add_prefix_space_) prefix(tokens);
    if (pattern_) split_by(*pattern_, SplitBehavior::kIsolated, false, tokens);
    std::string out;
    out.reserve(tokens.text.size() + tokens.text.size() / 4);
    for (PreTokens::Piece& piece : tokens.pieces) {
      const std::size_t begin = out.size();
      append_byte_level(tokens.view(piece), out);
      piece.begin = begin;
      piece.end = out.size();
    }
    tokens.text = std::move(out);
  }

 private:
  static void prefix(PreTokens& tokens) {
    std::string out;
    out.reserve(tokens.text.size() + tokens.pieces.size());
    for (PreTokens::Piece& piece : tokens.pieces) {
      const std::string_view view = tokens.view(piece);
      const std::size_t begin = out.size();
      if (view.front() != ' ') out.push_back(' ');
      out.append(view);
      piece.begin = begin;
      piece.end = out.size();
    }
    tokens.text = std::move(out);
  }

  bool add_prefix_space_;
  std::unique_ptr<TextPattern> pattern_;
};

// Replaces spaces by the mark of a word's beginning, may put it before a piece, and cuts at it.
class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };

  explicit MetaspacePreTokenizer(const ComponentReader& reader)
      : prepend_(read_prepend(reader)), split_(reader.boolean_or("split", true)) {
    append_utf8(reader.character("replacement"), mark_);
  }

  void apply(PreTokens& tokens) const override {
    std::string out;
    out.reserve(tokens.text.size() + tokens.text.size() / 4);
    for (PreTokens::Piece& piece : tokens.pieces) {
      const std::string_view view = tokens.view(piece);
      const std::size_t begin = out.size();
      const bool marked = view.front() == ' ' || view.substr(0, mark_.size()) == mark_;
      if (!marked &&
          (prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_origin))) {
        out.append(mark_);
      }
      for (const char c : view) {
        if (c == ' ') {
          out.append(mark_);
        } else {
          out.push_back(c);
        }
      }
      piece.begin = begin;
      piece.end = out.size();
    }
    tokens.text = std::move(out);
    if (split_) split_by(TextPattern(mark_), SplitBehavior::kMergedWithNext, false, tokens);
  }

 private:
  static Prepend read_prepend(const ComponentReader& reader) {
    if (!reader.has("prepend_scheme")) {
      return reader.boolean_or("add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
    }
    const std::string name = reader.string("prepend_scheme");
    if (name == "always") return Prepend::kAlways;
    if (name == "first") return Prepend::kFirst;
    if (name == "never") return Prepend::kNever;
    reader.wrong("prepend_scheme", "always, first or never");
  }

  Prepend prepend_;
  bool split_;
  std::string mark_;
};

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(PreTokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

std::unique_ptr<PreTokenizer> make_inner_pre_tokenizer(const ComponentReader& reader, int depth);

std::unique_ptr<PreTokenizer> make_pre_tokenizer_sequence(const ComponentReader& reader,
                                                          int depth) {
  reader.check_nesting("pretokenizers", depth);
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const ComponentReader& step : reader.children("pretokenizers")) {
    steps.push_back(make_inner_pre_tokenizer(step, depth + 1));
  }
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::make_unique<ClassPreTokenizer>(is_white_space, SplitBehavior::kRemoved));
  steps.push_back(
      std::make_unique<ClassPreTokenizer>(is_bert_punctuation, SplitBehavior::kIsolated));
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make_fixed_length(const ComponentReader& reader) {
  const std::int64_t length = reader.integer("length");
  if (length < 1) reader.wrong("length", "a positive number");
  return std::make_unique<FixedLengthPreTokenizer>(length);
}

std::unique_ptr<PreTokenizer> make_inner_pre_tokenizer(const ComponentReader& reader, int depth) {
  const std::string type = reader.type();
  if (type == "Sequence") return make_pre_tokenizer_sequence(reader, depth);
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelPreTokenizer>(reader.boolean_or("add_prefix_space", true),
                                                   reader.boolean_or("use_regex", true),
                                                   reader.where());
  }
  if (type == "Split") {
    return std::make_unique<SplitPreTokenizer>(
        TextPattern(reader, "pattern"), read_behavior(reader, "behavior", SplitBehavior::kIsolated),
        reader.boolean_or("invert", false));
  }
  if (type == "Digits") {
    return std::make_unique<ClassPreTokenizer>(
        is_number, reader.boolean_or("individual_digits", false) ? SplitBehavior::kIsolated
                                                                 : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    return std::make_unique<ClassPreTokenizer>(
        is_bert_punctuation, read_behavior(reader, "behavior", SplitBehavior::kIsolated));
  }
  if (type == "Whitespace") return std::make_unique<WhitespacePreTokenizer>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<ClassPreTokenizer>(is_white_space, SplitBehavior::kRemoved);
  }
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(reader);
  if (type == "BertPreTokenizer") return make_bert();
  if (type == "CharDelimiterSplit") {
    return std::make_unique<DelimiterPreTokenizer>(reader.character("delimiter"));
  }
  if (type == "UnicodeScripts") {
    // Only runs of one script remain; as in the reference, text that is in no run is removed.
    return std::make_unique<SplitPreTokenizer>(TextPattern(script_run_pattern(), reader.where()),
                                               SplitBehavior::kRemoved, true);
  }
  if (type == "FixedLength") return make_fixed_length(reader);
  fail(ErrorCode::kUnsupported, "{}: pre-tokenizer type '{}' is not known", reader.where(), type);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const ComponentReader& reader) {
  return make_inner_pre_tokenizer(reader, 0);
}

}  // namespace bl
