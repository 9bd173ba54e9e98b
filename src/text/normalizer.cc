#include "text/normalizer.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/charsmap.h"
#include "text/text_pattern.h"
#include "text/unicode.h"

namespace bl {
namespace {

// Rebuilds a text character by character: `each(c, out)` appends the replacement of c.
template <class Each>
std::string mapped(std::string_view text, Each each) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    each(c.value, out);
    i += c.size;
  }
  return out;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void apply(NormalizedText& text) const override {
    if (!is_ascii(text.text)) text.text = normalize_unicode(text.text, form_);
  }

 private:
  NormalForm form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    text.text = mapped(text.text, append_lower_case);
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text) const override {
    std::size_t begin = 0;
    std::size_t end = text.text.size();
    while (right_ && end > 0) {
      const CodePoint c = code_point_before(text.text, end);
      if (!is_white_space(c.value)) break;
      end -= c.size;
    }
    while (left_ && begin < end) {
      const CodePoint c = code_point_at(text.text, begin);
      if (!is_white_space(c.value)) break;
      begin += c.size;
    }
    if (begin > 0) text.at_origin = false;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    text.text = mapped(text.text, [](char32_t c, std::string& out) {
      if (c < 0x80 || !is_mark(c)) append_utf8(c, out);
    });
  }
};

// The filter of sentencepiece's "nmt" rules: control characters vanish, and unusual spaces become
// plain ones.
class NmtNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    text.text = mapped(text.text, [](char32_t c, std::string& out) {
      if (vanishes(c)) return;
      append_utf8(becomes_space(c) ? U' ' : c, out);
    });
  }

 private:
  static bool vanishes(char32_t c) {
    return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
           c == 0x8f || c == 0x9f;
  }
  static bool becomes_space(char32_t c) {
    return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
  }
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(NormalizedText& text) const override {
    text.text = pattern_.replace_all(text.text, content_);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string out;
    out.reserve(text.text.size() + text.text.size() / 4);
    append_byte_level(text.text, out);
    text.text = std::move(out);
  }
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const ComponentReader& reader)
      : clean_(reader.boolean_or("clean_text", true)),
        space_ideographs_(reader.boolean_or("handle_chinese_chars", true)),
        lowercase_(reader.boolean_or("lowercase", true)),
        strip_accents_(reader.boolean_or("strip_accents", lowercase_)) {}

  void apply(NormalizedText& text) const override {
    if (clean_) text.text = mapped(text.text, clean);
    if (space_ideographs_) text.text = mapped(text.text, space_ideograph);
    if (strip_accents_) {
      if (!is_ascii(text.text)) text.text = normalize_unicode(text.text, NormalForm::kNfd);
      text.text = mapped(text.text, [](char32_t c, std::string& out) {
        if (c < 0x80 || !is_nonspacing_mark(c)) append_utf8(c, out);
      });
    }
    if (lowercase_) text.text = mapped(text.text, append_lower_case);
  }

 private:
  static void clean(char32_t c, std::string& out) {
    const bool blank = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xfffd || (!blank && is_other(c))) return;
    append_utf8(blank || is_white_space(c) ? U' ' : c, out);
  }
  static void space_ideograph(char32_t c, std::string& out) {
    const bool ideograph = (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
                           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
                           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
                           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
    if (ideograph) out.push_back(' ');
    append_utf8(c, out);
    if (ideograph) out.push_back(' ');
  }

  bool clean_;
  bool space_ideographs_;
  bool lowercase_;
  bool strip_accents_;
};

// Applies a charsmap as tokenizer.json does. A whole grapheme cluster of less than six bytes is
// replaced by the replacement of its shortest key; if there is none, its characters are replaced
// one by one.
class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}
  void apply(NormalizedText& text) const override {
    std::string out;
    out.reserve(text.text.size());
    const std::string_view in = text.text;
    for (std::size_t begin = 0; begin < in.size();) {
      const std::size_t end = grapheme_end(in, begin);
      const std::string_view cluster = in.substr(begin, end - begin);
      begin = end;
      if (cluster.size() < 6 && replace(cluster, out)) continue;
      for (std::size_t i = 0; i < cluster.size(); i += utf8_size(cluster[i])) {
        const std::string_view part = cluster.substr(i, utf8_size(cluster[i]));
        if (!replace(part, out)) out.append(part);
      }
    }
    text.text = std::move(out);
  }

 private:
  bool replace(std::string_view part, std::string& out) const {
    const auto match = map_.shortest(part);
    if (match) out.append(match->replacement);
    return match.has_value();
  }

  Charsmap map_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(NormalizedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::optional<NormalForm> form_of(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

std::unique_ptr<Normalizer> make_inner_normalizer(const ComponentReader& reader, int depth) {
  const std::string type = reader.type();
  if (const auto form = form_of(type)) return std::make_unique<FormNormalizer>(*form);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(reader);
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(reader.boolean_or("strip_left", true),
                                             reader.boolean_or("strip_right", true));
  }
  if (type == "Replace") {
    return std::make_unique<ReplaceNormalizer>(TextPattern(reader, "pattern"),
                                               reader.string("content"));
  }
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(reader.string("prepend"));
  if (type == "Precompiled") {
    const std::string where = reader.where("precompiled_charsmap");
    const std::string blob = decode_base64(reader.string_or("precompiled_charsmap", ""), where);
    return std::make_unique<PrecompiledNormalizer>(Charsmap(blob, where));
  }
  if (type == "Sequence") {
    reader.check_nesting("normalizers", depth);
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const ComponentReader& step : reader.children("normalizers")) {
      steps.push_back(make_inner_normalizer(step, depth + 1));
    }
    return std::make_unique<SequenceNormalizer>(std::move(steps));
  }
  fail(ErrorCode::kUnsupported, "{}: normalizer type '{}' is not known", reader.where(), type);
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const ComponentReader& reader) {
  return make_inner_normalizer(reader, 0);
}

}  // namespace bl
